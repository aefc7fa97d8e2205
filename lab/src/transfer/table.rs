//! The text of a measurement, for people.

use std::fmt::Write as _;

use super::Transfer;

/// A matrix where it can be read, and what it means.
pub(super) fn text(measured: &Transfer) -> String {
    let Transfer { processor, pairs, pairs_in_all, transfer_ns, .. } = measured;
    let mut out = format!("{processor}\n");
    let _ = writeln!(
        out,
        "{} of {pairs_in_all} pairs of processors; ns per addition and thread: more than a thread \
         alone takes (alone, together)\n",
        pairs.len()
    );
    if pairs.len() == *pairs_in_all && measured.processors.len() <= MATRIX_MAX {
        matrix(&mut out, measured);
    }
    for pair in pairs.iter().take(PAIRS_SHOWN_MAX) {
        let ([a, b], of) = (pair.processors, pair.transfer_ns);
        let _ = writeln!(
            out,
            "{a:>4} -{b:>4} {:8.1}  ({:.1}-{:.1}; alone {:.1}, together {:.1})",
            of.median, of.min, of.max, pair.alone_ns.median, pair.together_ns.median
        );
    }
    if pairs.len() > PAIRS_SHOWN_MAX {
        let _ = writeln!(out, "     and {} pairs more", pairs.len() - PAIRS_SHOWN_MAX);
    }
    let s = transfer_ns.median;
    let _ = writeln!(
        out,
        "\ns = {s:.0} ns: the median pair's; the fastest pair's is {:.0}, the slowest's {:.0}.\n\
         A variable that every operation writes once lets {:.1} million operations a second happen, \
         on however many cores.\nForecasts take it with --profile measured; they give a band down \
         to s/2. Two processors tell\nnothing of how a line fares that eighty want: there it may \
         cost more.",
        transfer_ns.min,
        transfer_ns.max,
        1e3 / s
    );
    out
}

fn matrix(out: &mut String, measured: &Transfer) {
    let processors = &measured.processors;
    let _ = write!(out, "     ");
    processors.iter().for_each(|column| {
        let _ = write!(out, "{column:>6}");
    });
    let _ = writeln!(out);
    for row in processors {
        let _ = write!(out, "{row:>5}");
        for column in processors {
            let pair = measured.pairs.iter().find(|pair| {
                pair.processors == [*row, *column] || pair.processors == [*column, *row]
            });
            let _ = match pair {
                Some(pair) => write!(out, "{:>6.0}", pair.transfer_ns.median),
                None => write!(out, "     -"),
            };
        }
        let _ = writeln!(out);
    }
    let _ = writeln!(out);
}

/// Processors of a matrix that fits a screen.
const MATRIX_MAX: usize = 12;
/// Pairs that are told one by one.
const PAIRS_SHOWN_MAX: usize = 12;
