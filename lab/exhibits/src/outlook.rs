//! What many threads would come to, an [`Outlook`]: what one of two threads was recorded to do,
//! replayed by as many threads as nobody has here. A forecast, and called so.

use std::fmt;

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::{
    document::{Curve, CurvePoint, Knee},
    error::Error,
    recording::{ByPart, Recording},
    verdict,
};
use sealane_lab_sharing::{
    forecast::{self, Target, replays::Watch},
    transfer::{self, MEASURED},
};

/// What each of several ways to do one thing keeps of its speed alone.
pub(crate) struct Outlook {
    /// What it costs here to move a line.
    transfer_ns: f64,
    ways: Vec<(String, Curve)>,
}

/// An outlook, or why there is none here.
pub(crate) type Told = Result<Outlook, String>;

impl Outlook {
    /// The outlook of what was recorded, by name, with so many threads. A recording that is none
    /// says why.
    ///
    /// # Errors
    /// Ctrl-C; what else keeps it from being told is told.
    pub(crate) fn of(
        recordings: Vec<(String, Result<Recording, Error>)>,
        threads: &[u32],
        stop: &Interrupt,
    ) -> Result<Told, Error> {
        match replayed(recordings, threads, stop) {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Err(error.to_string())),
            Ok(outlook) => Ok(Ok(outlook)),
        }
    }

    /// What is kept with so many threads.
    pub(crate) fn at(&self, name: &str, threads: u32) -> Option<CurvePoint> {
        let points = &self.of_name(name)?.points;
        points.iter().find(|point| point.threads == threads).copied()
    }

    /// Whether it keeps more than 70% with any number of threads that was asked for.
    pub(crate) fn keeps(&self, name: &str) -> Option<bool> {
        self.of_name(name).map(|curve| verdict::fallen(curve).is_none())
    }

    fn of_name(&self, wanted: &str) -> Option<&Curve> {
        self.ways.iter().find(|(name, _)| name == wanted).map(|(_, curve)| curve)
    }
}

/// `FORECAST (not measured): lock keeps about 1% (0.4-2%) of its speed alone at 128 threads, ...`
impl fmt::Display for Outlook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.ways.iter().map(|(name, curve)| told(name, curve)).collect();
        let s = self.transfer_ns;
        write!(formatter, "FORECAST (not measured): {}; s = {s:.0} ns here", each.join(", "))
    }
}

/// With the time of one operation of a thread that waits for nobody, if it was measured.
pub(crate) fn alone(recording: Recording, ns: Option<f64>) -> Recording {
    let native_ns = ns.map(|server| ByPart { server, ..ByPart::default() });
    Recording { native_ns, ..recording }
}

fn told(name: &str, curve: &Curve) -> String {
    match (verdict::fallen(curve), curve.knee) {
        (Some(point), _) => format!("{name} {}", verdict::kept(&point, "its speed alone")),
        (None, Knee::NoneBelow { threads }) => {
            format!("{name} has no knee below {threads} threads")
        }
        (None, _) => format!("{name} was not replayed"),
    }
}

fn replayed(
    recordings: Vec<(String, Result<Recording, Error>)>,
    threads: &[u32],
    stop: &Interrupt,
) -> Result<Outlook, Error> {
    let mut all = Vec::new();
    for (name, recording) in recordings {
        let mut recording = recording?;
        recording.stack.name.clone_from(&name);
        if let Some(reason) = verdict::not_enough(&recording) {
            return Err(Error::Check(format!("{name}: {reason}")));
        }
        all.push((name, recording));
    }
    let target = Target::new(transfer::profile(MEASURED, stop)?, threads);
    let watch = Watch::new(stop, all.len() as u64 * forecast::curve_replays_max(&target));
    let curve = |(name, recording)| Ok((name, forecast::curve(&recording, &target, &watch)?));
    let ways = all.into_iter().map(curve).collect::<Result<Vec<_>, Error>>()?;
    Ok(Outlook { transfer_ns: target.profile.transfer_ns, ways })
}

/// Those of TLSnappy's machine, and the most that `forecast` is asked for by itself.
pub(crate) const MANY: [u32; 2] = [16, 128];

/// An outlook of curves that are known, for tests of what is judged by them.
#[cfg(test)]
pub(crate) fn known(ways: &[(&str, f64)]) -> Outlook {
    let point = |efficiency: f64| CurvePoint { threads: 128, efficiency, low: 0.0, high: 1.0 };
    let curve = |efficiency: f64| Curve {
        points: vec![CurvePoint { threads: 2, ..point(efficiency) }, point(efficiency)],
        knee: if efficiency < 0.7 { Knee::FewCores } else { Knee::NoneBelow { threads: 128 } },
    };
    let ways = ways.iter().map(|(name, kept)| ((*name).to_owned(), curve(*kept)));
    Outlook { transfer_ns: 50.0, ways: ways.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_is_told_with_its_share_and_what_does_not_without() {
        let outlook = known(&[("lock", 0.01), ("lane", 0.99)]);
        assert_eq!((outlook.keeps("lock"), outlook.keeps("lane")), (Some(false), Some(true)));
        assert_eq!(outlook.keeps("nobody"), None);
        assert_eq!(
            outlook.to_string(),
            "FORECAST (not measured): lock keeps about 1% (0.0-100%) of its speed alone at 128 \
             threads, lane has no knee below 128 threads; s = 50 ns here"
        );
    }

    #[test]
    fn what_cannot_be_recorded_is_told_and_ctrl_c_ends_it() {
        let of = |error| {
            let recordings = vec![("lock".to_owned(), Err(error))];
            Outlook::of(recordings, &[2], &Interrupt::default())
        };
        let lacking = Error::Missing { program: "x".into(), remedy: "apt-get install x".into() };
        let told = of(lacking).unwrap().err();
        assert_eq!(told.as_deref(), Some("x is missing; run: apt-get install x"));
        assert!(matches!(of(Error::Interrupted), Err(Error::Interrupted)));
    }
}
