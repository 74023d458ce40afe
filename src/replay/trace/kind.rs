//! The kinds of clients of a trace.

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientKind {
    /// A person: some sessions a week, pages with their images and scripts at once, and pauses between pages.
    Browser,
    /// A program that polls at a fixed interval, day and night.
    Poller,
    /// A person at work: requests through the hours of the working day.
    Office,
    /// Many people behind one address, most by day.
    SharedAddress,
    /// A program that fetches page after page for hours each day.
    Crawler,
    /// A program that polls, and after an error retries without a pause for some minutes, every few days.
    RetryStorm,
}

impl ClientKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Browser, Self::Poller, Self::Office, Self::SharedAddress, Self::Crawler, Self::RetryStorm];

    /// The user agent that its requests have.
    #[must_use]
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Browser | Self::Office | Self::SharedAddress => {
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
            }
            Self::Poller => "python-requests/2.32.3",
            Self::Crawler => "ExampleBot/1.0 (+https://bot.example/)",
            Self::RetryStorm => "Go-http-client/1.1",
        }
    }
}
