//! A fake etcd, which does what real ones do not when a test needs it: [`FakeEtcd`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

/// One server of a gateway, whose watches tell nothing but what a test has them tell.
pub(crate) struct FakeEtcd {
    pub(crate) endpoint: String,
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    asked: RefCell<Vec<(String, Value)>>,
    entries: RefCell<BTreeMap<String, Kept>>,
    /// What is done, and whose answer is lost then, once.
    lost: RefCell<Option<String>>,
    page_max: Cell<usize>,
    /// What is put before anything else is compared, once.
    put_before: RefCell<Option<(String, Vec<u8>)>>,
    refuses_all: Cell<bool>,
    revision: Cell<i64>,
    watch: RefCell<Option<mpsc::Sender<String>>>,
}

struct Kept {
    created: i64,
    lease: i64,
    modified: i64,
    value: Vec<u8>,
}

impl FakeEtcd {
    /// Starts it beside the test.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let inner = Rc::new(Inner::default());
        inner.page_max.set(usize::MAX);
        inner.revision.set(100);
        let served = Rc::clone(&inner);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(Rc::clone(&served).serve(stream));
            }
        });
        Self { endpoint, inner }
    }

    /// What it was asked so far, each with its words.
    pub(crate) fn asked(&self, what: &str) -> Vec<Value> {
        let asked = self.inner.asked.borrow();
        let these = asked.iter().filter(|(each, _)| each == what);
        these.map(|(_, words)| words.clone()).collect()
    }

    /// Has the next answer to `what` lost, once that is done.
    pub(crate) fn lose_answer(&self, what: &str) {
        self.inner.lost.replace(Some(what.to_owned()));
    }

    /// Answers pages of so many entries at most.
    pub(crate) fn shorten_pages(&self, entries: usize) {
        self.inner.page_max.set(entries);
    }

    /// Refuses all from now on.
    pub(crate) fn refuse_all(&self) {
        self.inner.refuses_all.set(true);
    }

    /// Puts an entry on no lease, of which no watch hears; returns the revision.
    pub(crate) fn put_unheard(&self, key: &str, value: &[u8]) -> i64 {
        self.inner.revision.set(self.inner.revision.get() + 1);
        self.inner.put(key, value.to_vec(), 0);
        self.inner.revision.get()
    }

    /// Puts an entry just before the next change that depends on a comparison.
    pub(crate) fn put_before_compares(&self, key: &str, value: &[u8]) {
        self.inner.put_before.replace(Some((key.to_owned(), value.to_vec())));
    }

    /// The value and the lease of an entry.
    pub(crate) fn entry(&self, key: &str) -> Option<(Vec<u8>, i64)> {
        self.inner.entries.borrow().get(key).map(|kept| (kept.value.clone(), kept.lease))
    }

    /// Where the watch that was opened last hears what is written.
    pub(crate) fn watch(&self) -> Option<mpsc::Sender<String>> {
        self.inner.watch.borrow().clone()
    }
}

impl Inner {
    async fn serve(self: Rc<Self>, stream: TcpStream) {
        // A client may go whenever it likes.
        let _ = self.answer_all(BufReader::new(stream)).await;
    }

    async fn answer_all(&self, mut stream: BufReader<TcpStream>) -> io::Result<()> {
        while let Some((what, words)) = question(&mut stream).await? {
            self.asked.borrow_mut().push((what.clone(), words.clone()));
            if what == "watch" && !self.refuses_all.get() {
                return self.tell(&mut stream).await;
            }
            let answer = (!self.refuses_all.get()).then(|| self.answer(&what, &words));
            let is_lost = self.lost.borrow_mut().take_if(|lost| *lost == what).is_some();
            let (status, answer) = match answer.filter(|_| !is_lost) {
                Some(answer) => ("200 OK", answer),
                // As one says whose leader is gone before it knows what came of it.
                None => {
                    ("503 Service Unavailable", json!({ "error": "etcdserver: request timed out" }))
                }
            };
            let text = answer.to_string();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", text.len());
            stream.write_all((head + &text).as_bytes()).await?;
        }
        Ok(())
    }

    async fn tell(&self, stream: &mut BufReader<TcpStream>) -> io::Result<()> {
        let (sender, mut said) = mpsc::channel(16);
        self.watch.replace(Some(sender));
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
        while let Some(text) = said.recv().await {
            let chunk = format!("{:x}\r\n{text}\r\n", text.len());
            stream.write_all(chunk.as_bytes()).await?;
        }
        Ok(())
    }

    fn answer(&self, what: &str, words: &Value) -> Value {
        let header = || json!({ "cluster_id": "7", "revision": self.revision.get().to_string() });
        match what {
            "kv/range" => self.range(words, &header()),
            "kv/txn" => {
                if each(words, "compare").next().is_some()
                    && let Some((key, value)) = self.put_before.take()
                {
                    self.revision.set(self.revision.get() + 1);
                    self.put(&key, value, 0);
                }
                let holds = each(words, "compare").all(|compare| self.holds(compare));
                let changes: Vec<_> = each(words, "success").filter(|_| holds).collect();
                let writes = |change: &&Value| change.get("request_range").is_none();
                if changes.iter().any(writes) {
                    self.revision.set(self.revision.get() + 1);
                }
                let done = changes.iter().map(|change| self.change(change, &header()));
                let responses: Vec<_> = done.collect();
                json!({ "header": header(), "succeeded": holds, "responses": responses })
            }
            "lease/grant" => json!({ "ID": (self.asked.borrow().len() + 1_000).to_string() }),
            "lease/keepalive" => json!({ "result": { "TTL": "5" } }),
            _ => json!({}),
        }
    }

    fn range(&self, words: &Value, header: &Value) -> Value {
        let (key, end) = (text(words, "key"), words.get("range_end"));
        let end = end.map_or_else(|| format!("{key}\0"), |_| text(words, "range_end"));
        let since = number(words, "min_mod_revision");
        let entries = self.entries.borrow();
        let found = entries.range(key..end).filter(|(_, kept)| kept.modified >= since);
        let all: Vec<Value> = found.map(|(key, kept)| kept.json(key)).collect();
        let limit = usize::try_from(number(words, "limit")).ok().filter(|limit| *limit > 0);
        let limit = limit.unwrap_or(usize::MAX).min(self.page_max.get());
        let some = all.get(..limit.min(all.len()));
        let some = some.filter(|_| words["count_only"] != true);
        let count = all.len().to_string();
        json!({ "header": header, "kvs": some.unwrap_or_default(), "count": count,
            "more": all.len() > limit })
    }

    fn holds(&self, compare: &Value) -> bool {
        let entries = self.entries.borrow();
        let there = entries.get(&text(compare, "key"));
        match compare.get("create_revision") {
            Some(_) => there.map_or(0, |kept| kept.created) == number(compare, "create_revision"),
            None => there.map_or(0, |kept| kept.modified) == number(compare, "mod_revision"),
        }
    }

    fn change(&self, change: &Value, header: &Value) -> Value {
        if let Some(range) = change.get("request_range") {
            return json!({ "response_range": self.range(range, header) });
        }
        if let Some(put) = change.get("request_put") {
            self.put(&text(put, "key"), bytes(put, "value"), number(put, "lease"));
        }
        if let Some(delete) = change.get("request_delete_range") {
            let (key, is_one) = (text(delete, "key"), delete.get("range_end").is_none());
            let is_meant = |each: &String| *each == key || (!is_one && each.starts_with(&key));
            self.entries.borrow_mut().retain(|each, _| !is_meant(each));
        }
        json!({})
    }

    fn put(&self, key: &str, value: Vec<u8>, lease: i64) {
        let (mut entries, modified) = (self.entries.borrow_mut(), self.revision.get());
        let created = entries.get(key).map_or(modified, |before| before.created);
        entries.insert(key.to_owned(), Kept { created, lease, modified, value });
    }
}

impl Kept {
    fn json(&self, key: &str) -> Value {
        json!({
            "key": BASE64_STANDARD.encode(key),
            "value": BASE64_STANDARD.encode(&self.value),
            "create_revision": self.created.to_string(),
            "mod_revision": self.modified.to_string(),
            "lease": self.lease.to_string(),
        })
    }
}

/// The next thing that is asked for on a connection, and its words; none at its end.
async fn question(stream: &mut BufReader<TcpStream>) -> io::Result<Option<(String, Value)>> {
    let (mut first, mut length) = (String::new(), 0);
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(given) = line.strip_prefix("content-length: ") {
            length = given.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let what = first.split(' ').nth(1).and_then(|path| path.strip_prefix("/v3/")).unwrap();
    Ok(Some((what.to_owned(), serde_json::from_slice(&body).unwrap())))
}

fn each<'v>(words: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    words.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn bytes(words: &Value, name: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(words[name].as_str().unwrap_or_default()).unwrap()
}

fn text(words: &Value, name: &str) -> String {
    String::from_utf8(bytes(words, name)).unwrap()
}

fn number(words: &Value, name: &str) -> i64 {
    words[name].as_str().map_or(0, |text| text.parse().unwrap())
}
