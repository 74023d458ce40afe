//! Runs a test: sends the requests of its steps, with counts that begin empty, on a clock of its own.

use std::sync::Arc;

use super::comparison::{self, Difference};
use super::observed::{Observed, Played, sent_status};
use crate::cli::explain::{CountedRequest, Explained, MadeUpRequest};
use crate::config::{Loaded, PolicyTest, TestRequest, TestStep};
use crate::gate::{ClientIdentity, RecordedParts};
use crate::http1::RequestHead;
use crate::jwt::{Token, TokenError};
use crate::replay::{PartSources, PlayedRequest, Player, RequestCourse, ResponseCost};
use crate::time::{Micros, Timestamp};

/// Why a test has failed, at one of its steps.
pub(super) struct StepFailure {
    /// The number of the step, from 1; none if the test has only one.
    pub step: Option<usize>,
    /// The line of the step's expectation.
    pub line: usize,
    pub failure: Failure,
}

/// Why a step has failed.
pub(super) enum Failure {
    /// What happens is not what is expected.
    Differs(Vec<Difference>),
    /// What happens is not known.
    Unknown(String),
}

/// Runs a test until a step fails.
pub(super) fn run(loaded: &Loaded, test: &PolicyTest) -> Option<StepFailure> {
    let sources = PartSources::default();
    let mut player = Player::new(&loaded.config.snapshot, &sources, loaded.config.max_keys);
    let mut now = test.start;
    let is_long = test.steps.len() > 1;
    (1..).zip(&test.steps).find_map(|(number, step)| {
        let start = now.after(step.after.into());
        now = arrival(step, start, step.repeat - 1);
        let failure = match play(loaded, &mut player, step, start) {
            Err(why) => Failure::Unknown(why),
            Ok(observed) => {
                let differences = comparison::compare(loaded, &step.expect, &observed);
                (!differences.is_empty()).then_some(Failure::Differs(differences))?
            }
        };
        Some(StepFailure { step: is_long.then_some(number), line: step.line(), failure })
    })
}

/// When the request with this number, from 0, arrives.
fn arrival(step: &TestStep, start: Timestamp, number: u64) -> Timestamp {
    let span = Micros::from(step.within).0;
    // Below the span, and so it fits.
    let after = u128::from(span) * u128::from(number) / u128::from(step.repeat);
    start.after(Micros(u64::try_from(after).unwrap_or(span)))
}

/// Sends the requests of a step, the first of them at this time. Fails if what happens depends on what a test does not have.
fn play(
    loaded: &Loaded,
    player: &mut Player<'_>,
    step: &TestStep,
    start: Timestamp,
) -> Result<Observed, String> {
    let request = &step.request;
    let recorded = recorded(loaded, request)?;
    let headers = request.headers.iter().flatten().map(|(name, value)| format!("{name}: {value}"));
    let headers: Vec<String> = std::iter::once(format!("host: {}", request.host)).chain(headers).collect();
    let url = request.scheme.map_or_else(
        || request.path.clone(),
        |scheme| format!("{scheme}://{}{}", request.host, request.path),
    );
    let made_up = MadeUpRequest {
        method: &request.method,
        url: &url,
        headers: &headers,
        body: request.body.as_deref().map(str::as_bytes),
        from: request.client,
        tls_subject: request.tls_subject.as_deref(),
        tls_san: request.tls_san.as_deref(),
        listener: request.listener.as_deref(),
        recorded: Some(&recorded),
    };
    let (head, client) = (made_up.head()?, made_up.client(loaded)?);
    check_token(loaded, &head, request)?;
    if let Some(consumers) = &loaded.config.snapshot.gate.consumers {
        consumers.clock.set(arrival(step, start, step.repeat - 1));
    }
    let explained = made_up.explain(loaded, &head)?;
    if explained.response.kind == "unknown" {
        return Err(
            "its consumer may be in Redis, which tests do not read: give the request a `consumer`".to_owned()
        );
    }
    let sent = Sent { loaded, client, explained: &explained, recorded: &recorded, step };
    let (last, allowed) = sent.play(player, start);
    Ok(Observed::new(loaded, &explained, last, allowed))
}

/// The requests of a step.
struct Sent<'a> {
    loaded: &'a Loaded,
    client: ClientIdentity<'a>,
    explained: &'a Explained,
    recorded: &'a RecordedParts,
    step: &'a TestStep,
}

impl Sent<'_> {
    /// Plays them; returns the result of the last, and how many no limit denies.
    fn play(&self, player: &mut Player<'_>, start: Timestamp) -> (Played, u64) {
        // A route that responds with the state of its limits does not charge them.
        let counted = self.explained.counted.as_ref().filter(|_| self.explained.response.kind != "limits");
        let Some(CountedRequest { head, body }) = counted else {
            return (Played::default(), self.step.repeat);
        };
        let request = PlayedRequest { client: self.client, head, body, recorded: self.recorded };
        let status = Some(self.final_status());
        let cost = self.step.request.settle.map_or(ResponseCost::Unknown, ResponseCost::Units);
        let (mut last, mut allowed) = (Played::default(), 0);
        for number in 0..self.step.repeat {
            let arrival = arrival(self.step, start, number);
            let end = arrival.after(self.step.request.duration.into());
            let course = RequestCourse { arrival, end, status, cost };
            last = player
                .play_request(request, course, |played, planned| Played::new(self.loaded, played, planned));
            allowed += u64::from(last.denied_by.is_none());
        }
        (last, allowed)
    }

    /// The final status of a request that no limit denies.
    fn final_status(&self) -> u16 {
        let response = &self.explained.response;
        match response.status {
            Some(status) if response.kind == "reject" || response.kind == "block" => {
                sent_status(self.loaded, status)
            }
            Some(status) => status,
            None => self.step.request.upstream_status.as_u16(),
        }
    }
}

/// What is known of a request beside its head.
fn recorded(loaded: &Loaded, request: &TestRequest) -> Result<RecordedParts, String> {
    let mut recorded = RecordedParts::default();
    if let (Some(name), Some(rules)) = (&request.consumer, &loaded.config.snapshot.gate.consumers) {
        recorded.consumer = Some(Arc::clone(rules.named(name)?));
    }
    recorded.has_token = request.claims.is_some();
    let claims = request.claims.iter().flatten();
    recorded.values =
        claims.map(|(name, value)| (format!("jwt:{name}").into(), value.clone().into_bytes())).collect();
    Ok(recorded)
}

/// Rejects a token that can't be verified since its keys are elsewhere.
fn check_token(loaded: &Loaded, head: &RequestHead, request: &TestRequest) -> Result<(), String> {
    let token = Token::new(loaded.config.snapshot.gate.jwt.as_deref(), &head.fields);
    if request.claims.is_none() && token.claims().err() == Some(TokenError::NoKeys) {
        return Err(
            "the keys of its token are fetched from a URL, which tests do not do: give the request `claims`"
                .to_owned(),
        );
    }
    Ok(())
}
