//! Many parallel streams against one budget: on one to four proxies, in memory and with Redis.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard};

use fastrand::Rng;
use serde_json::Value;

use super::setup::config;
use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, eventually, get, patience};

/// The streams of a round.
const STREAMS: usize = 200;
/// The units of a round.
const BUDGET: u64 = 4_000;
/// Rounds for each set of proxies.
const ROUNDS: u64 = 3;

/// What the server knows of a round.
#[derive(Debug, Default)]
struct Round {
    /// Whether responses continue after their heads.
    continues: bool,
    /// Declared units of streams in flight, and the used ones of those that have ended.
    committed: u64,
    /// The greatest value of that.
    most: u64,
    /// Units that were used.
    used: u64,
    served: u64,
}

#[derive(Debug, Default)]
struct ModelState {
    round: Mutex<Round>,
    continued: Condvar,
    /// Tokens that all streams have been sent.
    sent: AtomicU64,
    is_over: AtomicBool,
}

/// A model that uses as many tokens as its requests say, and counts them.
struct Model {
    upstream: Upstream,
    state: Arc<ModelState>,
}

fn number(body: &Value, name: &str) -> u64 {
    body[name].as_u64().unwrap()
}

/// Tokens of input of a request.
const INPUT: u64 = 5;

impl Model {
    fn start() -> Self {
        let state = Arc::<ModelState>::default();
        let shared = Arc::clone(&state);
        let upstream = Upstream::scripted(move |caller| {
            while let Ok(Some(request)) = caller.request() {
                if serve(caller, &request, &shared).is_err() {
                    return;
                }
            }
        });
        Self { upstream, state }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.state.round.lock().unwrap()
    }

    /// Begins a round.
    fn begin(&self) {
        *self.round() = Round::default();
        self.state.sent.store(0, Ordering::SeqCst);
    }

    /// Lets the responses continue when all `streams` are in flight or `denied`, when little of the budget is free.
    fn continue_after(&self, streams: usize, denied: &AtomicU64) {
        eventually("each stream is admitted or denied", || {
            self.round().served + denied.load(Ordering::SeqCst) == streams as u64
        });
        self.round().continues = true;
        self.state.continued.notify_all();
    }
}

impl ModelState {
    fn wait_until_continued(&self) {
        let round = self.round.lock().unwrap();
        drop(self.continued.wait_timeout_while(round, patience(), |round| !round.continues).unwrap());
    }
}

/// Streams an answer, which counts as declared until it has ended.
fn serve(caller: &mut crate::support::Caller, request: &Message, state: &ModelState) -> std::io::Result<()> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let (declared, output) = (INPUT + number(&body, "max_tokens"), number(&body, "use"));
    let used = INPUT + output;
    {
        let mut round = state.round.lock().unwrap();
        round.committed += declared;
        round.served += 1;
        round.most = round.most.max(round.committed);
    }
    let event = |data: &str| super::setup::chunk(&format!("data: {data}\n\n"));
    caller.try_send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    state.wait_until_continued();
    for _ in 0..output {
        caller.try_send(event(r#"{"choices": [{"delta": {"content": "a"}}]}"#))?;
        if state.sent.fetch_add(1, Ordering::SeqCst) >= BUDGET {
            state.is_over.store(true, Ordering::SeqCst);
        }
    }
    state.sent.fetch_add(INPUT, Ordering::SeqCst);
    let usage =
        format!(r#"{{"choices": [], "usage": {{"prompt_tokens": {INPUT}, "completion_tokens": {output}}}}}"#);
    {
        // Before the last event: what follows may be admitted as soon as it has arrived.
        let mut round = state.round.lock().unwrap();
        round.committed = (round.committed + used).saturating_sub(declared);
        round.used += used;
        round.most = round.most.max(round.committed);
    }
    caller.try_send(event(&usage) + &event("[DONE]") + "0\r\n\r\n")
}

/// Proxies that share a budget by the header `x-key`.
fn proxies(model: &Model, redis: Option<&RedisServer>, count: usize) -> Vec<Tidegate> {
    let limit = "cost = \"llm_tokens\"\nbytes_per_token = 16";
    let config = config(limit, &model.upstream.url())
        .replace("rate = \"1000/day\"", &format!("rate = \"{BUDGET}/365d\""))
        .replace("access = \"json\"", "access = \"off\"");
    let start = |_| match redis {
        Some(redis) => Tidegate::start_with(redis, &config),
        None => Tidegate::start(&config),
    };
    (0..count).map(start).collect()
}

/// A stream: what it declares, and what it uses.
#[derive(Clone, Copy)]
struct Stream {
    declared: u64,
    output: u64,
}

/// Sends a request, and reads its response. Returns its status.
fn ask(proxy: &Tidegate, key: &str, stream: Stream) -> u16 {
    let body = format!(
        r#"{{"model": "m", "max_tokens": {}, "use": {}, "stream": true, "messages": [{{"role": "user", "content": "hello"}}]}}"#,
        stream.declared, stream.output
    );
    let mut client = Client::connect(proxy.addr());
    client.send(format!(
        "POST /v1/chat HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.read().status()
}

/// Sends all streams at once, each to the next proxy, and each once more while the others end. Returns how many were
/// admitted.
fn play(model: &Model, proxies: &[Tidegate], key: &str, streams: &[Stream]) -> u64 {
    let (start, denied) = (Barrier::new(streams.len()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(index, stream)| {
                let (start, denied) = (&start, &denied);
                scope.spawn(move || {
                    start.wait();
                    let proxy = &proxies[index % proxies.len()];
                    let first = ask(proxy, key, *stream);
                    if first == 429 {
                        denied.fetch_add(1, Ordering::SeqCst);
                        model.state.wait_until_continued();
                    }
                    let statuses = [first, ask(proxy, key, *stream)];
                    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
                    statuses.iter().filter(|status| **status == 200).count() as u64
                })
            })
            .collect();
        model.continue_after(streams.len(), &denied);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// What remains of the budget of a key, once nothing is reserved on any proxy.
fn left(proxies: &[Tidegate], key: &str, expected: u64) {
    let own = |proxy: &Tidegate| {
        let response = get(proxy.addr(), "/own", &[&format!("X-Key: {key}")]);
        let body: Value = serde_json::from_str(response.text()).unwrap();
        (number(&body["limits"][0], "remaining"), number(&body["limits"][0], "reserved"))
    };
    eventually("what remains is what was not used", || {
        proxies.iter().all(|proxy| own(proxy) == (expected, 0))
    });
}

/// Plays a round whose estimates are upper bounds; returns its numbers.
fn round_of_bounds(model: &Model, proxies: &[Tidegate], seed: u64) -> (u64, u64, u64) {
    let mut random = Rng::with_seed(seed);
    let streams: Vec<Stream> = (0..STREAMS)
        .map(|_| {
            let declared = random.u64(1..=120);
            Stream { declared, output: random.u64(0..=declared) }
        })
        .collect();
    model.begin();
    let key = format!("round-{seed}");
    let admitted = play(model, proxies, &key, &streams);
    let round = model.round();
    assert_eq!(round.served, admitted);
    // The estimate of the input is a few tokens higher for each stream, and the next stream may need 127.
    assert!(
        (BUDGET * 4 / 5..=BUDGET).contains(&round.most),
        "{} of {BUDGET} were committed in round {seed}",
        round.most
    );
    assert!(
        !model.state.is_over.load(Ordering::SeqCst),
        "the server has sent more than the budget in round {seed}"
    );
    assert!(admitted > 0 && admitted < 2 * STREAMS as u64, "{admitted} were admitted");
    left(proxies, &key, BUDGET - round.used);
    (admitted, round.most, round.used)
}

fn rounds() -> u64 {
    std::env::var("PROOF_FACTOR")
        .ok()
        .and_then(|factor| factor.parse().ok())
        .map_or(ROUNDS, |factor: u64| ROUNDS * factor)
}

/// What streams have used, and what those in flight have declared, never exceeds the budget.
fn parallel_streams_keep_the_budget(count: usize, redis: Option<&RedisServer>) {
    let model = Model::start();
    let proxies = proxies(&model, redis, count);
    for seed in 1..=rounds() {
        let (admitted, most, used) = round_of_bounds(&model, &proxies, seed);
        println!("{count} proxies, round {seed}: {admitted} admitted, at most {most} committed, {used} used");
    }
}

#[test]
fn one_proxy_in_memory() {
    parallel_streams_keep_the_budget(1, None);
}

#[test]
fn one_proxy_with_redis() {
    parallel_streams_keep_the_budget(1, Some(&RedisServer::start()));
}

#[test]
fn two_proxies_with_redis() {
    parallel_streams_keep_the_budget(2, Some(&RedisServer::start()));
}

#[test]
fn four_proxies_with_redis() {
    parallel_streams_keep_the_budget(4, Some(&RedisServer::start()));
}
