//! A call of a script, which may have to be sent again.

use std::sync::Arc;

use fred::clients::Client;
use fred::error::Error;
use fred::types::Value;
use fred::types::config::Options;
use tokio::time::Instant;

use super::cluster::{self, Command};
use super::script::Script;

/// A call of a script. Only after a redirection and NOSCRIPT is it sent again, since these prove that nothing was charged.
pub(super) struct ScriptCall {
    command: Command,
    script: &'static Script,
}

impl ScriptCall {
    /// `args` without the script.
    pub fn new(client: Arc<Client>, script: &'static Script, mut args: Vec<Value>) -> Self {
        args.insert(0, script.sha.as_str().into());
        // A custom command of fred, because only these honour the options: fail at once while there is no connection, and never
        // send again.
        Self { command: Command::new(client, "EVALSHA", args, options()), script }
    }

    /// Runs it, until it is redirected.
    pub async fn run(&mut self) -> Result<Value, Error> {
        loop {
            let reply = self.command.send().await;
            if !self.sends_source(&reply) {
                return reply;
            }
        }
    }

    /// Runs it after `error`, a redirection, and follows all of them.
    pub async fn run_again(&mut self, mut error: Error, deadline: Instant) -> Result<Value, Error> {
        loop {
            let reply = self.command.send_again(error, deadline).await;
            if !self.sends_source(&reply) {
                return reply;
            }
            match self.run().await {
                Err(next) if cluster::may_be_retried(&next) => error = next,
                reply => return reply,
            }
        }
    }

    /// Changes the command to one with the script's source if the server does not have it; returns whether.
    fn sends_source(&mut self, reply: &Result<Value, Error>) -> bool {
        let is_missing = reply.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT"));
        if is_missing {
            self.command.rename("EVAL", self.script.source.as_str().into());
        }
        is_missing
    }
}

/// The options of every command: fail at once while there is no connection, and never send again.
pub(super) fn options() -> Options {
    Options { fail_fast: true, max_attempts: Some(1), ..Options::default() }
}
