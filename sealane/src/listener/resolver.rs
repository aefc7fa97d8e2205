//! Host names of backends, looked up with an end to the wait, and what is done while that fails.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What names of backends lead to, kept from one reading to the next.
///
/// A name that cannot be looked up is no reason not to start, for the machine may have started with
/// its resolver missing; nor to give up an address that was good so far. In a later reading a name
/// that is new must lead somewhere.
#[derive(Clone, Default)]
pub struct Names {
    known: HashMap<String, Option<Vec<SocketAddr>>>,
    /// Whether a reading has been served.
    has_started: bool,
}

/// Where a name leads.
#[derive(Debug, PartialEq, Eq)]
pub enum Led {
    /// Here.
    Here(Vec<SocketAddr>),
    /// Nowhere yet, and why.
    Nowhere(String),
    /// Here when it was last looked up, and why it cannot be now.
    Once(Vec<SocketAddr>, String),
}

impl Names {
    /// Where `name` leads by these `answers`, or else as it did.
    ///
    /// # Errors
    /// It is new and cannot be looked up.
    pub fn look_up(&mut self, name: &str, answers: &Answers) -> Result<Led, String> {
        match (answers.of(name), self.known.get(name)) {
            (Ok(addresses), _) => {
                self.known.insert(name.to_owned(), Some(addresses.to_vec()));
                Ok(Led::Here(addresses.to_vec()))
            }
            (Err(why), Some(Some(last))) => Ok(Led::Once(last.clone(), why.to_owned())),
            (Err(why), None) if self.has_started => Err(why.to_owned()),
            (Err(why), Some(None) | None) => {
                self.known.insert(name.to_owned(), None);
                Ok(Led::Nowhere(why.to_owned()))
            }
        }
    }

    /// What is served from now on has these names, and no others.
    pub fn serve<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        let mut known = std::mem::take(&mut self.known);
        self.known = names.into_iter().filter_map(|name| known.remove_entry(name)).collect();
        self.has_started = true;
    }

    /// Those that lead nowhere yet.
    pub fn nowhere(&self) -> BTreeSet<String> {
        let led_nowhere = self.known.iter().filter(|(_, led)| led.is_none());
        led_nowhere.map(|(name, _)| name.clone()).collect()
    }
}

/// What names led to that were looked up together.
#[derive(Default)]
pub struct Answers(HashMap<String, Answer>);

/// The addresses of a name, with port 0, or why there is none.
pub type Answer = Result<Vec<SocketAddr>, String>;

impl Answers {
    /// What was answered for `name`.
    ///
    /// # Errors
    /// It has no address, or there was no answer in time.
    pub fn of(&self, name: &str) -> Result<&[SocketAddr], &str> {
        match self.0.get(name) {
            Some(Ok(addresses)) => Ok(addresses),
            Some(Err(why)) => Err(why),
            None => Err("it was not looked up"),
        }
    }

    /// Whether one leads somewhere.
    pub fn has_address(&self) -> bool {
        self.0.values().any(Result::is_ok)
    }
}

impl FromIterator<(String, Answer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (String, Answer)>>(answers: I) -> Self {
        Self(answers.into_iter().collect())
    }
}

/// Looks `names` up, many at a time and on threads of their own: a resolver that is silent must not
/// hold up a signal, however many names there are.
pub fn resolve_all(names: BTreeSet<String>) -> Answers {
    resolve_by(names, RESOLVE_TIMEOUT, ask_system)
}

fn ask_system(name: &str) -> Answer {
    let found = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    let addresses: Vec<_> = found.collect();
    if addresses.is_empty() { Err("the name has no address".into()) } else { Ok(addresses) }
}

fn resolve_by(
    names: BTreeSet<String>,
    patience: Duration,
    ask: impl Fn(&str) -> Answer + Clone + Send + 'static,
) -> Answers {
    let deadline = Instant::now() + patience;
    let mut missing = format!("no answer within {} s", patience.as_secs());
    let queue = Arc::new(Mutex::new(VecDeque::from_iter(names.clone())));
    let (sender, found) = channel();
    for _ in 0..names.len().min(RESOLVERS) {
        let (queue, sender, ask) = (Arc::clone(&queue), sender.clone(), ask.clone());
        let look_up = move || {
            while let Some(name) = next(&queue) {
                let answer = ask(&name);
                // Whoever asked may have given up.
                let _ = sender.send((name, answer));
            }
        };
        if let Err(error) = thread::Builder::new().name("resolver".into()).spawn(look_up) {
            missing = error.to_string();
            break;
        }
    }
    drop(sender);
    let mut answers = HashMap::with_capacity(names.len());
    while answers.len() < names.len()
        && let Ok((name, answer)) =
            found.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        answers.insert(name, answer);
    }
    // Nobody waits for what is left in it.
    lock(&queue).clear();
    for name in names {
        answers.entry(name).or_insert_with(|| Err(missing.clone()));
    }
    Answers(answers)
}

type Queue = Mutex<VecDeque<String>>;

fn next(queue: &Queue) -> Option<String> {
    lock(queue).pop_front()
}

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<String>> {
    // Names are as good as they were when another thread panicked.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks `names` up on a thread of its own, and tells what they led to.
///
/// # Errors
/// There is no thread to be had.
pub fn look_again(
    names: BTreeSet<String>,
    tell: impl FnOnce(Answers) + Send + 'static,
) -> std::io::Result<()> {
    // In the time that a reading gives them, too: what takes longer would not be served.
    let look_up = move || tell(resolve_all(names));
    thread::Builder::new().name("resolver".into()).spawn(look_up).map(drop)
}

/// All look-ups of a reading together; for as long a signal may have to wait.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Names that are looked up at a time.
const RESOLVERS: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_name_that_leads_nowhere_is_borne_at_the_start_alone() {
        let mut names = Names::default();
        let none = || {
            let both = ["early.test", "gone.test"].map(str::to_owned).into_iter();
            both.map(|name| (name, Err("no such host".to_owned()))).collect::<Answers>()
        };
        assert!(matches!(names.look_up("early.test", &none()), Ok(Led::Nowhere(_))));
        assert!(matches!(names.look_up("gone.test", &none()), Ok(Led::Nowhere(_))));
        names.serve(["early.test"]);
        assert_eq!(names.nowhere(), ["early.test".to_owned()].into());
        assert!(matches!(names.look_up("early.test", &none()), Ok(Led::Nowhere(_))));
        assert_eq!(names.look_up("gone.test", &none()), Err("no such host".into()));
        assert_eq!(names.look_up("late.test", &none()), Err("it was not looked up".into()));
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let found = Answers::from_iter([("early.test".into(), Ok(vec![here]))]);
        let found = names.look_up("early.test", &found);
        assert_eq!(found, Ok(Led::Here(vec![here])));
        assert!(names.nowhere().is_empty());
        let once = names.look_up("early.test", &none());
        assert_eq!(once, Ok(Led::Once(vec![here], "no such host".into())));
    }

    fn many() -> BTreeSet<String> {
        (0..3 * RESOLVERS).map(|number| format!("{number}.test")).collect()
    }

    #[test]
    fn many_names_are_looked_up_at_a_time_and_each_has_its_own_answer() {
        let all_at_once = Arc::new(Barrier::new(RESOLVERS));
        let ask = move |name: &str| {
            all_at_once.wait();
            Err(name.to_owned())
        };
        let found = resolve_by(many(), Duration::from_secs(60), ask);
        assert!(many().iter().all(|name| found.of(name) == Err(name)));
    }

    #[test]
    fn at_the_deadline_nobody_goes_on_asking() {
        let (gate, asked) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
        let is_silent = gate.lock().unwrap();
        let (waits, counted) = (Arc::clone(&gate), Arc::clone(&asked));
        let ask = move |_: &str| {
            counted.fetch_add(1, SeqCst);
            drop(waits.lock());
            Err(String::new())
        };
        let found = resolve_by(many(), Duration::ZERO, ask);
        assert!(many().iter().all(|name| found.of(name) == Err("no answer within 0 s")));
        drop(is_silent);
        while Arc::strong_count(&asked) > 1 {
            thread::yield_now();
        }
        assert!(asked.load(SeqCst) <= RESOLVERS);
    }
}
