//! The operations of the interface, by their paths.

/// An operation of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Checks the process. Needs no token: a supervisor or load balancer needs no secret for it.
    Probe(Probe),
    /// The page for operators. Needs no token, since it has no data.
    Page,
    /// Reads: GET.
    Read(Read),
    /// Changes a key: POST.
    Change(Change),
    /// Reloads the configuration: POST.
    Reload,
}

/// A check of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Live,
    Ready,
}

/// An operation that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Metrics,
    OpenApi,
    Status,
    Limits,
    Top,
    Events,
    History,
    Keys,
    DeniedKeys,
    Peek,
    KeyHistory,
    Raises,
}

/// A change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Reset,
    Block,
    Unblock,
    Raise,
    EndRaise,
}

/// Every operation with its path. Paths without a version are where other programs expect them.
pub(super) const OPERATIONS: [(&str, Operation); 21] = [
    ("/", Operation::Page),
    ("/live", Operation::Probe(Probe::Live)),
    ("/ready", Operation::Probe(Probe::Ready)),
    ("/metrics", Operation::Read(Read::Metrics)),
    ("/openapi.json", Operation::Read(Read::OpenApi)),
    ("/v1/status", Operation::Read(Read::Status)),
    ("/v1/reload", Operation::Reload),
    ("/v1/limits", Operation::Read(Read::Limits)),
    ("/v1/top", Operation::Read(Read::Top)),
    ("/v1/events", Operation::Read(Read::Events)),
    ("/v1/history", Operation::Read(Read::History)),
    ("/v1/keys", Operation::Read(Read::Keys)),
    ("/v1/keys/denied", Operation::Read(Read::DeniedKeys)),
    ("/v1/keys/peek", Operation::Read(Read::Peek)),
    ("/v1/keys/history", Operation::Read(Read::KeyHistory)),
    ("/v1/keys/raises", Operation::Read(Read::Raises)),
    ("/v1/keys/reset", Operation::Change(Change::Reset)),
    ("/v1/keys/block", Operation::Change(Change::Block)),
    ("/v1/keys/unblock", Operation::Change(Change::Unblock)),
    ("/v1/keys/raise", Operation::Change(Change::Raise)),
    ("/v1/keys/end-raise", Operation::Change(Change::EndRaise)),
];

impl Operation {
    /// The operation with this path.
    pub fn at(path: &str) -> Option<Self> {
        OPERATIONS.iter().find(|(own, _)| *own == path).map(|(_, operation)| *operation)
    }
}
