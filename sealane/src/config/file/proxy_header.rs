//! The keys by which a listener says what its backends are told of a client.

use super::super::mistake::Problem;
use super::super::proxy_header::{ProxyHeader, Telling, Told};
use super::super::reader::{Table, Value};

/// `proxy_header`, and what `proxy_tlvs` puts into it.
pub(super) fn proxy_header(table: &mut Table<'_>) -> ProxyHeader {
    let written = table.value("proxy_header");
    let chosen = written.as_ref().and_then(header);
    let Some(tlvs) = table.value("proxy_tlvs") else { return chosen.unwrap_or_default() };
    let told = told(&tlvs).unwrap_or_default();
    match chosen {
        Some(ProxyHeader::Pass(_)) => ProxyHeader::Pass(told),
        Some(ProxyHeader::V2(_)) => ProxyHeader::V2(told),
        Some(ProxyHeader::V1) => {
            let what = "version 1 of the header has room for addresses only";
            tlvs.wrong(Problem::new(what, V2_REMEDY));
            ProxyHeader::V1
        }
        // It was turned off on purpose, or cannot be read and may have meant one.
        Some(ProxyHeader::Off) | None if written.is_some() => ProxyHeader::Off,
        Some(ProxyHeader::Off) | None => {
            tlvs.wrong(Problem::new("there is no header that could tell it", V2_REMEDY));
            ProxyHeader::Off
        }
    }
}

fn header(written: &Value<'_>) -> Option<ProxyHeader> {
    if written.as_text().is_some() {
        let told = Told::default();
        return written.choice(&[
            ("pass", ProxyHeader::Pass(told)),
            ("v1", ProxyHeader::V1),
            ("v2", ProxyHeader::V2(told)),
        ]);
    }
    let is_on = written.boolean()?;
    Some(if is_on { ProxyHeader::V2(Told::default()) } else { ProxyHeader::Off })
}

fn told(written: &Value<'_>) -> Option<Told> {
    let list = written.set(Telling::NAMES.len(), |v| v.choice(&Telling::NAMES))?;
    let stray = list.iter().find(|telling| telling.is_in_ssl());
    if let Some(stray) = stray.filter(|_| !list.contains(&Telling::Ssl)) {
        let name = Telling::NAMES.iter().find(|(_, telling)| telling == stray);
        let what = format!("{:?} is told within \"ssl\"", name.map_or("", |(name, _)| name));
        written.wrong(Problem::new(what, "add \"ssl\""));
    }
    Some(Told::these(&list))
}

const V2_REMEDY: &str = "use proxy_header = \"v2\"";
