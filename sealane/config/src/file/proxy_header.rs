//! The keys of the PROXY header that backends get.

use super::super::mistake::Problem;
use super::super::proxy_header::{ProxyHeader, Tlv, Tlvs};
use super::super::reader::{Table, Value};

/// Reads `proxy_header` and `proxy_tlvs`; a key that is not written is that of `default`.
pub(super) fn proxy_header(table: &mut Table<'_>, default: ProxyHeader) -> ProxyHeader {
    let written = table.value("proxy_header");
    let chosen = match &written {
        Some(written) => header(written, default.tlvs().unwrap_or_default()),
        None => Some(default),
    };
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
        // The header is off on purpose, or its key cannot be read.
        Some(ProxyHeader::Off) | None if written.is_some() => ProxyHeader::Off,
        Some(ProxyHeader::Off) | None => {
            listed.wrong(Problem::new("there is no header that could tell it", V2_REMEDY));
            ProxyHeader::Off
        }
    }
}

/// Reads `proxy_header`; a header of version 2 has the TLVs `usual`.
fn header(written: &Value<'_>, usual: Tlvs) -> Option<ProxyHeader> {
    if written.as_text().is_some() {
        return written.choice(&[
            ("pass", ProxyHeader::Pass(usual)),
            ("v1", ProxyHeader::V1),
            ("v2", ProxyHeader::V2(usual)),
        ]);
    }
    let is_on = written.boolean()?;
    Some(if is_on { ProxyHeader::V2(usual) } else { ProxyHeader::Off })
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
