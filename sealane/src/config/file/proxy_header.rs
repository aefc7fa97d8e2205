//! The keys by which a listener says what its backends are told of a client.

use super::super::mistake::Problem;
use super::super::proxy_header::{ProxyHeader, Tlv, Tlvs};
use super::super::reader::{Table, Value};

/// `proxy_header`, and what `proxy_tlvs` puts into it.
pub(super) fn proxy_header(table: &mut Table<'_>) -> ProxyHeader {
    let written = table.value("proxy_header");
    let chosen = written.as_ref().and_then(header);
    let Some(listed) = table.value("proxy_tlvs") else { return chosen.unwrap_or_default() };
    let tlvs = listed_tlvs(&listed).unwrap_or_default();
    match chosen {
        Some(ProxyHeader::Pass(_)) => ProxyHeader::Pass(tlvs),
        Some(ProxyHeader::V2(_)) => ProxyHeader::V2(tlvs),
        Some(ProxyHeader::V1) => {
            let what = "version 1 of the header has room for addresses only";
            listed.wrong(Problem::new(what, V2_REMEDY));
            ProxyHeader::V1
        }
        // It was turned off on purpose, or cannot be read and may have meant one.
        Some(ProxyHeader::Off) | None if written.is_some() => ProxyHeader::Off,
        Some(ProxyHeader::Off) | None => {
            listed.wrong(Problem::new("there is no header that could tell it", V2_REMEDY));
            ProxyHeader::Off
        }
    }
}

fn header(written: &Value<'_>) -> Option<ProxyHeader> {
    if written.as_text().is_some() {
        let usual = Tlvs::default();
        return written.choice(&[
            ("pass", ProxyHeader::Pass(usual)),
            ("v1", ProxyHeader::V1),
            ("v2", ProxyHeader::V2(usual)),
        ]);
    }
    let is_on = written.boolean()?;
    Some(if is_on { ProxyHeader::V2(Tlvs::default()) } else { ProxyHeader::Off })
}

fn listed_tlvs(written: &Value<'_>) -> Option<Tlvs> {
    let list = written.set(Tlv::NAMES.len(), |v| v.choice(&Tlv::NAMES))?;
    let stray = list.iter().find(|tlv| tlv.is_in_ssl());
    if let Some(stray) = stray.filter(|_| !list.contains(&Tlv::Ssl)) {
        let name = Tlv::NAMES.iter().find(|(_, tlv)| tlv == stray);
        let what = format!("{:?} is told within \"ssl\"", name.map_or("", |(name, _)| name));
        written.wrong(Problem::new(what, "add \"ssl\""));
    }
    Some(Tlvs::these(&list))
}

const V2_REMEDY: &str = "use proxy_header = \"v2\"";
