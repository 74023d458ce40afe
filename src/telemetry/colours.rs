//! Decides whether output has colours, for commands and for the log.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

/// Whether output to `stream` has colours. `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` decide, in this order; otherwise a
/// terminal has colours unless `TERM` is `dumb` or not set. clap decides in the same way.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}
