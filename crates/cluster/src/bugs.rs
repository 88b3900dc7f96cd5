//! Bugs that a run can plant, to show that the judge finds them.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A partition that takes over aborts its prepared transactions without asking.
    LostPrepare,
    /// A transaction commits although a participant has not voted.
    SkippedVote,
    /// An answer leaves before the log that it rests on is on the copies.
    EarlyReply,
    /// A decision is announced before it is in the coordinator's log.
    UnloggedDecision,
    /// A coordinator that does not know a transaction says that it has committed.
    PresumedCommit,
    /// A coordinator forgets a commit before all participants have received it.
    ForgottenCommit,
    /// Some fragments run without locks and without undo.
    ReleasedUndo,
    /// A call that arrives twice runs twice.
    RepeatedCall,
    /// An abort reaches one participant as a commit.
    HalfAbort,
}

impl PlantedBug {
    /// Every bug.
    pub const ALL: [Self; 9] = [
        Self::LostPrepare,
        Self::SkippedVote,
        Self::EarlyReply,
        Self::UnloggedDecision,
        Self::PresumedCommit,
        Self::ForgottenCommit,
        Self::ReleasedUndo,
        Self::RepeatedCall,
        Self::HalfAbort,
    ];
}

impl Display for PlantedBug {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for PlantedBug {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bug| bug.to_string() == name);
        found.ok_or_else(|| format!("unknown bug \"{name}\""))
    }
}
