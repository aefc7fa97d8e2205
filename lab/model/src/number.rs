//! Numbers as people read them: three digits that matter, thousands apart.

/// `1,234`, `98.5`, `0.012`; three significant digits below 1,000, whole numbers above.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let size = value.abs();
    if size < SMALLEST {
        return "0".into();
    }
    let decimals = match size {
        _ if size >= 999.5 => 0,
        _ if size >= 99.95 => usize::from((value - value.round()).abs() > 0.05),
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.0995 => 3,
        _ => 4,
    };
    trim(with_decimals(value, decimals))
}

/// A value with so many decimals, thousands apart.
pub fn with_decimals(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    let zero = grouped.chars().all(|c| matches!(c, '0' | '.' | ','));
    if value < 0.0 && !zero { format!("\u{2212}{grouped}") } else { grouped }
}

/// Bytes in the unit that suits them.
pub fn bytes(value: f64) -> String {
    match value {
        _ if value >= GIB => format!("{} GiB", number(value / GIB)),
        _ if value >= MIB => format!("{} MiB", number(value / MIB)),
        _ if value >= KIB => format!("{} KiB", number(value / KIB)),
        _ => format!("{} B", number(value)),
    }
}

/// Without zeros that say nothing.
fn trim(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

const SMALLEST: f64 = 0.000_05;
const KIB: f64 = 1024.0;
const MIB: f64 = KIB * 1024.0;
const GIB: f64 = MIB * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        let cases = [
            (0.0, "0"),
            (0.012_34, "0.0123"),
            (0.5, "0.5"),
            (1.0, "1"),
            (1.234, "1.23"),
            (98.54, "98.5"),
            (412.0, "412"),
            (412.34, "412.3"),
            (2_086.0, "2,086"),
            (1_234_567.8, "1,234,568"),
            (-3.5, "\u{2212}3.5"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(bytes(8_400.0), "8.2 KiB");
        assert_eq!(bytes(2_097_152.0), "2 MiB");
    }
}
