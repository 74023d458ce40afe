//! HTTP/1.1 messages.

/// A message that was read to its end.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Request line or status line.
    pub start: String,
    /// Headers in their order, names as they were spelled.
    pub headers: Vec<(String, String)>,
    /// The body, without its chunks.
    pub body: Vec<u8>,
    /// The fields after the last chunk.
    pub trailers: Vec<(String, String)>,
    /// The status lines of the interim responses before it.
    pub interim: Vec<String>,
}

impl Message {
    /// Reads a head, without its empty line.
    pub fn head(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or("").to_owned();
        Self { start, headers: lines.filter(|line| !line.is_empty()).map(field).collect(), ..Self::default() }
    }

    /// Reads a message of which the head and then all of the body are given.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
        let head = String::from_utf8_lossy(&bytes[..end]);
        Self { body: bytes[end + 4..].to_vec(), ..Self::head(&head) }
    }

    /// The status of a response.
    #[track_caller]
    pub fn status(&self) -> u16 {
        let code = self.start.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("no status line: {:?}", self.start))
    }

    /// The only value of a header.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} several times: {all:?}");
        all.first().copied()
    }

    /// Every value of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(key, _): &&(String, String)| key.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).map(|(_, value)| &**value).collect()
    }

    /// The names of all headers, in lower case and sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.headers.iter().map(|(name, _)| name.to_lowercase()).collect();
        names.sort();
        names
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The request that an echo server has received, from the body of its response.
    #[track_caller]
    pub fn echoed(&self) -> Self {
        assert_eq!(self.status(), 200, "{self:?}");
        Self::parse(&self.body)
    }
}

/// Reads `name: value`.
pub fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name.to_owned(), value.trim().to_owned())
}
