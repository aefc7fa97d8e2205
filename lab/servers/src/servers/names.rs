//! Many names: a certificate and key of its own for each, [`Names`], and what a server makes of
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use sealane_lab_harness::authority::Authority;
use sealane_lab_model::{error::Error, scenario::Key};

use crate::{
    load::{Crew, Expect, Load, Plan, Request, Roots, Until, Work},
    servers::{
        configuration::Many,
        measure::{Bench, Sample},
        programs::Entry,
        running::{Circumstances, Running, START_TIME_MAX},
    },
};

/// Certificates for names under `lab.test`, all of one root.
pub(crate) struct Names {
    folder: PathBuf,
    names: Vec<String>,
    /// The root of all.
    pub roots: Roots,
    /// What is there of the first name, and what a reload is to bring.
    first: [String; 2],
}

impl Names {
    /// Makes and writes them.
    pub(crate) fn make(folder: &Path, count: u64) -> Result<Self, Error> {
        let root = Authority::root("Sealane lab root of names", Key::P256)?;
        let certificates = folder.join("certificates");
        fs::create_dir_all(&certificates).map_err(Error::file(&certificates))?;
        let mut names = Vec::new();
        let mut first = [String::new(), String::new()];
        for number in 0..count {
            let name = format!("n{number:05}.lab.test");
            let pem = root.leaf(&name)?;
            let path = certificates.join(format!("{name}.pem"));
            fs::write(&path, &pem).map_err(Error::file(&path))?;
            if number == 0 {
                first = [pem, root.leaf(&name)?];
            }
            names.push(name);
        }
        let path = folder.join("root.pem");
        fs::write(&path, root.pem()).map_err(Error::file(&path))?;
        Ok(Self { folder: certificates, names, roots: Roots::read(&path)?, first })
    }

    /// All columns of the case, in their order.
    pub(crate) fn measure(
        &self,
        bench: &Bench,
        entry: &Entry,
        binary: &Path,
        folder: &Path,
    ) -> Result<Vec<Sample>, Error> {
        self.write_first(0)?;
        let circumstances = Circumstances {
            pem: &self.folder.join(format!("{}.pem", self.names[0])),
            many: Some(Many { folder: &self.folder, names: &self.names }),
            profile: bench.profile,
            placement: &bench.placement,
            workers: bench.workers,
            connections_max: CONNECTIONS_MAX,
            interrupted: &bench.interrupted,
        };
        let mut server = match Running::start(entry, binary, folder, circumstances) {
            Err(Error::Unsupported(why)) => {
                let sample = Sample { not_offered: Some(why), ..Sample::default() };
                return Ok(vec![sample; COLUMNS]);
            }
            result => result?,
        };
        let ready = self.wait_until_ready(bench, &mut server)?;
        let memory_mib = bench.memory(&server.process)? as f64 / f64::from(1 << 20);
        let asked = usize::try_from(bench.amount.names_asked).unwrap_or(usize::MAX);
        let stride = ((self.names.len() - 1) / asked.max(1)).max(1);
        let asked: Vec<String> =
            self.names.iter().skip(1).step_by(stride).take(asked).cloned().collect();
        let mut crew = self.crew(bench, &server, &asked)?;
        let each_once = Load::closed(echo(), 1, Until::Count(asked.len() as u64));
        let mut samples = vec![only(ready.as_secs_f64()), only(memory_mib)];
        // The crew asks for all of them in turn: never before, then once more.
        for _ in 0..2 {
            let mut sample = bench.measured(&server, &mut crew, &each_once)?;
            // With one connection at a time, the rate is no one's capacity.
            sample.rate = None;
            samples.push(sample);
        }
        samples.extend(self.reload(bench, entry, &server)?);
        Ok(samples)
    }

    /// Some listen before they have read their certificates: the first handshake tells.
    fn wait_until_ready(&self, bench: &Bench, server: &mut Running) -> Result<Duration, Error> {
        loop {
            let mut crew = self.crew(bench, server, &self.names[..1])?;
            match crew.run(&Load::closed(echo(), 1, Until::Count(1))) {
                Ok(_) => return Ok(server.age()),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) if !server.process.runs() || server.age() > START_TIME_MAX => {
                    return Err(server.did_not_start(&error));
                }
                Err(_) => thread::sleep(Duration::from_millis(POLL_MS)),
            }
        }
    }

    /// Changes one certificate and waits until it is served.
    fn reload(&self, bench: &Bench, entry: &Entry, server: &Running) -> Result<[Sample; 2], Error> {
        let Some(signal) = entry.reload_signal() else {
            let why = Some("it has no reload that the lab knows".to_owned());
            let sample = Sample { not_offered: why, ..Sample::default() };
            return Ok([sample.clone(), sample]);
        };
        let wanted = CertificateDer::from_pem_slice(self.first[1].as_bytes())
            .map_err(|error| Error::Check(format!("the new certificate: {error}")))?;
        let mut plan = self.plan(bench, server, &self.names[..1])?;
        plan.tolerant = true;
        let cpu_before = server.process.cpu()?;
        self.write_first(1)?;
        let began = Instant::now();
        server.process.signal(signal)?;
        let mut failed = 0;
        loop {
            let mut crew = Crew::new(&plan, std::num::NonZeroUsize::MIN)?;
            failed += crew.run(&Load::closed(echo(), 1, Until::Count(1)))?.failed();
            if crew.leaf() == Some(&wanted) {
                break;
            }
            // A load that counts failures takes Ctrl-C for its end.
            if bench.interrupted.is_pressed() {
                return Err(Error::Interrupted);
            }
            if began.elapsed() > Duration::from_secs(RELOAD_SECONDS_MAX) {
                let text = format!("no new certificate {RELOAD_SECONDS_MAX} s after the reload");
                return Err(Error::Check(text));
            }
            thread::sleep(Duration::from_millis(POLL_MS));
        }
        let time = only(began.elapsed().as_secs_f64());
        // What is left of it: old workers end, and others may not have begun.
        let mut cpu_ns = server.process.cpu()?.since(&cpu_before);
        for _ in 0..QUIET_LOOKS_MAX {
            bench.settle();
            let now_ns = server.process.cpu()?.since(&cpu_before);
            let quiet = now_ns.saturating_sub(cpu_ns) < QUIET_NS;
            cpu_ns = cpu_ns.max(now_ns);
            if quiet {
                break;
            }
        }
        let note = (failed > 0).then(|| format!("{failed} connections failed meanwhile"));
        Ok([Sample { note, ..time }, only(cpu_ns as f64 / 1e9)])
    }

    fn write_first(&self, which: usize) -> Result<(), Error> {
        let path = self.folder.join(format!("{}.pem", self.names[0]));
        // Whole or not at all: some servers look at their files by themselves.
        let next = self.folder.with_extension("next");
        fs::write(&next, &self.first[which]).map_err(Error::file(&next))?;
        fs::rename(&next, &path).map_err(Error::file(&path))
    }

    fn crew(&self, bench: &Bench, server: &Running, names: &[String]) -> Result<Crew, Error> {
        Crew::new(&self.plan(bench, server, names)?, std::num::NonZeroUsize::MIN)
    }

    fn plan(&self, bench: &Bench, server: &Running, names: &[String]) -> Result<Plan, Error> {
        let mut plan = bench.plan(server, false)?;
        plan.expect = Expect { leaf: None, ..plan.expect };
        if let Some(tls) = &mut plan.tls {
            tls.offer.roots = self.roots.clone();
            tls.names = names
                .iter()
                .map(|name| ServerName::try_from(name.clone()))
                .collect::<Result<_, _>>()
                .map_err(|error| Error::Check(format!("server name: {error}")))?;
        }
        // nginx chooses by this as well.
        plan.host.clone_from(&names[0]);
        Ok(plan)
    }
}

fn echo() -> Work {
    Work::Connections(Some(Request::Echo))
}

fn only(figure: f64) -> Sample {
    Sample { figure: Some(figure), ..Sample::default() }
}

/// The columns of `Case::Names`.
const COLUMNS: usize = 6;
const CONNECTIONS_MAX: u64 = 1_000;
const POLL_MS: u64 = 10;
const QUIET_LOOKS_MAX: usize = 200;
/// Used in one look by a server that has nothing to do.
const QUIET_NS: u64 = 5_000_000;
const RELOAD_SECONDS_MAX: u64 = 180;
