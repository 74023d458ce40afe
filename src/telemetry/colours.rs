//! Whether output has colours: one decision for all that is printed or logged.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

/// Whether what is written to `stream` has colours. A terminal has them, unless `TERM` is `dumb` or not set;
/// `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` go before that, in this order. clap decides in the same way.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}
