//! Clients that requests are denied to again and again: blocked as a command would, unless they must be left
//! alone.

use std::{
    net::IpAddr,
    time::{Duration, Instant, SystemTime},
};

use tracing::{debug, info, warn};

use super::reload::Daemon;
use crate::{
    admin::{
        command::{Batch, Blocked, Kind, NewBlock, Refusal},
        handle::Escalated,
        schema::What,
    },
    escalate::{Crossing, Sentence, Whom},
    network::interfaces,
};

/// For how long the addresses of this host are taken for what they were.
const FRESH: Duration = Duration::from_secs(1);

/// The addresses of this host, looked at anew when they are old.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    addresses: Vec<IpAddr>,
    looked: Option<Instant>,
}

// === impl OwnAddresses ===

impl OwnAddresses {
    fn look(&mut self) -> &[IpAddr] {
        if self.looked.is_none_or(|looked| looked.elapsed() > FRESH) {
            match interfaces::addresses() {
                Ok(addresses) => self.addresses = addresses,
                Err(error) => warn!("failed to list the addresses of this host: {error}"),
            }
            self.looked = Some(Instant::now());
        }
        &self.addresses
    }
}

// === impl Daemon ===

impl Daemon<'_> {
    /// Deals with clients that were denied too often.
    pub(super) fn escalate(&mut self, crossings: &mut Vec<Crossing>) {
        for crossing in crossings.drain(..) {
            let outcome = self.escalate_one(&crossing).unwrap_or_else(|refusal| {
                // Nothing holds, so the next denials count again.
                self.escalation.forget(&[crossing.client]);
                warn!("{}: not blocked for its requests: {refusal}", crossing.address);
                Some(Escalated::Failed)
            });
            if let Some(outcome) = outcome {
                self.handle.count_escalation(&crossing.rule, outcome);
            }
        }
        self.handle.set_lost_escalations(self.escalation.lost());
    }

    /// `None`: it is blocked already, and what comes now was under way.
    fn escalate_one(&mut self, crossing: &Crossing) -> Result<Option<Escalated>, Refusal> {
        let (Some(network), Some(http), Some(keeper)) =
            (&self.config.network, &self.config.http, &mut self.keeper)
        else {
            // Another configuration came into force meanwhile.
            return Ok(None);
        };
        let own = self.own_addresses.look();
        let Whom { prefix, shed } = match self.escalation.whom(crossing, network, &http.trusted_proxies, own)
        {
            Ok(whom) => whom,
            Err(exempt) => {
                debug!("{}: left alone whatever its requests are: {}", crossing.address, exempt.words());
                return Ok(Some(Escalated::Spared));
            }
        };
        if keeper.holds(prefix)? {
            return Ok(None);
        }
        let Some(Sentence { block, offence }) = self.escalation.sentence(crossing, prefix) else {
            return Ok(None);
        };
        let (reason, duration) = (block.reason.clone(), block.duration.unwrap_or_default());
        let time = humantime::format_duration(duration);
        let outcome = if let Some(rule) = &shed {
            keeper.put_under(prefix, rule, duration)?;
            info!("{prefix}: put under the rule `{rule}` for {time}: {reason}");
            Escalated::PutUnder
        } else {
            self.block_one(block)?;
            info!("{prefix}: blocked for {time}: {reason}");
            Escalated::Blocked
        };
        self.handle.publish(What::Escalated {
            prefix,
            client: crossing.address,
            rule: crossing.rule.to_string(),
            denials: crossing.terms.after.into(),
            within: humantime::format_duration(crossing.terms.within).to_string(),
            offence,
            until: SystemTime::now() + duration,
            under: shed,
        });
        Ok(Some(outcome))
    }

    fn block_one(&mut self, block: NewBlock) -> Result<(), Refusal> {
        let batch = Batch { entries: vec![block], reason: String::new() };
        let Blocked { errors, .. } = self.put_blocks(batch, None)?;
        match errors.into_iter().next() {
            Some((_, message)) => Err(Refusal::new(Kind::Failed, message)),
            None => Ok(()),
        }
    }
}
