//! Host names of backends, looked up many at a time and with an end to the wait.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What names led to that were looked up together.
pub struct Answers {
    asked: Instant,
    by_name: HashMap<String, Answer>,
}

/// The addresses of a name, with port 0, in order and none twice, or why there is none.
pub type Answer = Result<Vec<SocketAddr>, String>;

impl Answers {
    /// What was answered for `name`.
    ///
    /// # Errors
    /// It has no address, or there was no answer in time.
    pub fn of(&self, name: &str) -> Result<&[SocketAddr], &str> {
        match self.by_name.get(name) {
            Some(Ok(addresses)) => Ok(addresses),
            Some(Err(why)) => Err(why),
            None => Err("it was not looked up"),
        }
    }

    /// When they were asked for.
    pub fn asked(&self) -> Instant {
        self.asked
    }

    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.by_name.iter().map(|(name, answer)| (name.as_str(), answer))
    }
}

impl FromIterator<(String, Answer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (String, Answer)>>(answers: I) -> Self {
        Self { asked: Instant::now(), by_name: answers.into_iter().collect() }
    }
}

/// Looks `names` up, many at a time and on threads of their own: a resolver that is silent must not
/// hold up a signal, however many names there are.
pub fn resolve_all(names: BTreeSet<String>) -> Answers {
    resolve_by(names, RESOLVE_TIMEOUT, &ASKING, ask_system)
}

fn ask_system(name: &str) -> Answer {
    let found = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    // In an order of their own: resolvers turn them around.
    let addresses: Vec<_> = found.collect::<BTreeSet<_>>().into_iter().collect();
    if addresses.is_empty() { Err("the name has no address".into()) } else { Ok(addresses) }
}

fn resolve_by(
    names: BTreeSet<String>,
    patience: Duration,
    asking: &'static AtomicUsize,
    ask: impl Fn(&str) -> Answer + Clone + Send + 'static,
) -> Answers {
    let asked = Instant::now();
    let deadline = asked + patience;
    let mut missing = format!("no answer within {} s", patience.as_secs());
    if !names.is_empty() && asking.load(Relaxed) >= RESOLVERS {
        "the resolver has not answered for other names yet".clone_into(&mut missing);
    }
    let queue = Arc::new(Mutex::new(VecDeque::from_iter(names.clone())));
    let (sender, found) = channel();
    for place in (0..names.len()).map_while(|_| Place::take(asking)) {
        let (queue, sender, ask) = (Arc::clone(&queue), sender.clone(), ask.clone());
        let look_up = move || {
            let _place = place;
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
    let mut by_name = HashMap::with_capacity(names.len());
    while by_name.len() < names.len()
        && let Ok((name, answer)) =
            found.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        by_name.insert(name, answer);
    }
    // Nobody waits for what is left in it.
    lock(&queue).clear();
    for name in names {
        by_name.entry(name).or_insert_with(|| Err(missing.clone()));
    }
    Answers { asked, by_name }
}

/// A thread's leave to ask, until it ends: one whose resolver is silent keeps it longer than
/// anybody waits.
struct Place(&'static AtomicUsize);

impl Place {
    fn take(asking: &'static AtomicUsize) -> Option<Self> {
        let one_more = |count| (count < RESOLVERS).then_some(count + 1);
        asking.fetch_update(Relaxed, Relaxed, one_more).ok().map(|_| Self(asking))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
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
/// Names that are looked up at a time, by all readings together.
const RESOLVERS: usize = 32;
/// Threads that look a name up.
static ASKING: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

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
        static ASKING: AtomicUsize = AtomicUsize::new(0);
        let found = resolve_by(many(), Duration::from_secs(60), &ASKING, ask);
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
        static ASKING: AtomicUsize = AtomicUsize::new(0);
        let found = resolve_by(many(), Duration::ZERO, &ASKING, ask);
        assert!(many().iter().all(|name| found.of(name) == Err("no answer within 0 s")));
        drop(is_silent);
        while ASKING.load(SeqCst) > 0 {
            thread::yield_now();
        }
        assert!(asked.load(SeqCst) <= RESOLVERS);
    }
    #[test]
    fn no_thread_is_started_beside_as_many_as_may_be_that_a_silent_resolver_holds() {
        static ASKING: AtomicUsize = AtomicUsize::new(RESOLVERS);
        let found = resolve_by(many(), Duration::from_secs(60), &ASKING, |_| unreachable!());
        let busy = "the resolver has not answered for other names yet";
        assert!(many().iter().all(|name| found.of(name) == Err(busy)));
        assert_eq!(ASKING.load(SeqCst), RESOLVERS);
    }
}
