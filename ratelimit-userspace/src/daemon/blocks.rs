//! Blocks that commands make: they live in the kernel; here they are kept for the next boot, given room when
//! they become many, and swept when they have ended.

mod keeper;

use std::{net::IpAddr, time::SystemTime};

use ipnet::IpNet;
use tracing::info;

pub(super) use self::keeper::Keeper;
use super::{
    network::Policy,
    reload::{Daemon, text},
    trial::ApplyError,
};
use crate::{
    admin::{
        command::{Batch, Blocked, Kind, Refusal, Session, Unblocked},
        schema::{Origin, What},
    },
    config::policy::Network,
    network::{
        blocks::{BlocksError, NewBlock},
        lockout,
    },
};

/// A batch of no more than this is told of block by block.
const FEW: usize = 16;

// === impl Daemon ===

impl Daemon<'_> {
    /// Blocks all of a batch for which there is room, or nobody, and tells of it.
    pub(super) fn block(&mut self, batch: Batch, guarded: Option<Session>) -> Result<Blocked, Refusal> {
        let few = (batch.entries.len() <= FEW).then(|| batch.entries.clone());
        let default_reason = batch.reason.clone();
        let blocked = self.put_blocks(batch, guarded)?;
        if let Some(entries) = few {
            for (index, entry) in entries.into_iter().enumerate() {
                if blocked.errors.iter().all(|(failed, _)| *failed != index) {
                    self.tell_of_block(entry, &default_reason);
                }
            }
        } else {
            let Blocked { added, replaced, errors } = &blocked;
            info!("blocked: {added} more, {replaced} anew, {} failed", errors.len());
            self.handle.publish(What::BlockedMany {
                added: *added,
                replaced: *replaced,
                failed: errors.len(),
            });
        }
        Ok(blocked)
    }

    /// Blocks all of a batch for which there is room, or nobody.
    pub(super) fn put_blocks(&mut self, batch: Batch, guarded: Option<Session>) -> Result<Blocked, Refusal> {
        let policy = Policy::of(&self.config);
        let (Some(keeper), Some(enforcement), Some(policy)) = (&mut self.keeper, &self.enforcement, policy)
        else {
            let message = "the rules file has no `network:` section, so nobody can be blocked";
            return Err(Refusal::new(Kind::Conflict, message));
        };
        if let Some(session) = guarded {
            admit(&batch, policy.network, &session)?;
        }
        if let Some(trial) = &self.trial
            && keeper.needs_room(&batch, policy.network)?
        {
            // The table is part of the generation that a rollback brings back.
            return Err(ApplyError::OnTrial { id: trial.id.clone() }.into());
        }
        let prefixes = batch.entries.iter().map(|entry| &entry.prefix);
        keeper.make_room(prefixes, enforcement, policy).map_err(|error| Refusal::from(&error))?;

        let outcome = keeper.block_all(batch.into_entries());
        let errors: Vec<_> = outcome.errors.into_iter().map(|(index, error)| (index, text(&error))).collect();
        Ok(Blocked { added: outcome.added, replaced: outcome.replaced, errors })
    }

    fn tell_of_block(&self, block: NewBlock, default_reason: &str) {
        let NewBlock { prefix, duration, reason } = block;
        let reason = if reason.is_empty() { default_reason.to_owned() } else { reason };
        let until = duration.map(|duration| SystemTime::now() + duration);
        let time = duration.map_or_else(
            || "until it is unblocked".to_owned(),
            |duration| format!("for {}", humantime::format_duration(duration)),
        );
        info!(
            "{prefix}: blocked {time}{}",
            if reason.is_empty() { String::new() } else { format!(": {reason}") }
        );
        self.handle.publish(What::Blocked { prefix, until, reason, origin: Origin::Command });
    }

    /// Ends blocks.
    pub(super) fn unblock(&mut self, prefixes: Vec<IpNet>) -> Result<Unblocked, Refusal> {
        let Some(keeper) = &mut self.keeper else {
            let message = "the rules file has no `network:` section, so nobody is blocked";
            return Err(Refusal::new(Kind::Conflict, message));
        };
        // An address stands for the client that was blocked for its requests, as it does for a rule's.
        let client_of = |prefix: &IpNet| single(prefix).and_then(|address| self.escalation.offender(address));
        let clients: Vec<_> = prefixes.iter().map(client_of).collect();
        self.escalation.forget(&prefixes);
        let mut removed = Vec::new();
        for (prefix, client) in prefixes.into_iter().zip(clients) {
            self.crowdsec.lift(prefix);
            if keeper.release(prefix)? {
                removed.push(prefix);
            } else if let Some(client) = client
                && keeper.release(client)?
            {
                removed.push(client);
            }
        }
        for prefix in &removed {
            info!("{prefix}: unblocked");
            self.handle.publish(What::Unblocked { prefix: *prefix });
        }
        Ok(Unblocked { removed })
    }

    /// Returns when [`Self::keep_blocks`] has something to do.
    pub(super) async fn blocks_due(&self) {
        match &self.keeper {
            Some(keeper) => keeper.due().await,
            None => std::future::pending().await,
        }
    }

    /// Writes and sweeps.
    pub(super) fn keep_blocks(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.work();
        }
    }
}

fn single(prefix: &IpNet) -> Option<IpAddr> {
    (prefix.prefix_len() == prefix.max_prefix_len()).then(|| prefix.addr())
}

/// Refuses blocks that would cut the operator off.
fn admit(batch: &Batch, network: &Network, session: &Session) -> Result<(), Refusal> {
    let mut prefixes = batch.entries.iter().map(|entry| &entry.prefix);
    match prefixes.find(|prefix| lockout::block_sheds(prefix, network, session)) {
        None => Ok(()),
        Some(prefix) => Err(Refusal::new(
            Kind::LockedOut,
            format!(
                "blocking {prefix} would cut off your own connection from {}; nobody was blocked. Put the \
                 address into `management` or `allow`, or use --force",
                session.client
            ),
        )),
    }
}

impl From<BlocksError> for Refusal {
    fn from(error: BlocksError) -> Self {
        Self::from_error(kind(&error), &error)
    }
}

/// What kind of refusal an error is.
pub(super) fn kind(error: &BlocksError) -> Kind {
    match error {
        BlocksError::Full { .. } => Kind::Full,
        BlocksError::HostBits { .. }
        | BlocksError::Mapped { .. }
        | BlocksError::NoTime
        | BlocksError::TooLong { .. }
        | BlocksError::LongReason { .. }
        | BlocksError::ControlCharacters => Kind::Invalid,
        _ => Kind::Failed,
    }
}
