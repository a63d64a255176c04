//! The flood and the honest clients beside it.

use std::{net::IpAddr, sync::Arc};

use xtask::lab::{Flood, Plan};

use crate::{
    PATIENCE, arrivals, eventually,
    honest::{self, Asked, Echo, Honest},
    host::Host,
    party::{self, BURST, Party, Role},
};

/// Frames of the flood a second: a twentieth of them or so may pass.
const PACE: u64 = 20_000;
/// How much each source of the flood sends at least while one fault happens.
const LEAST: u64 = 2 * BURST;

/// Everybody who sends.
pub(crate) struct Traffic {
    pub(crate) parties: Vec<Party>,
    pub(crate) asked: Arc<Asked>,
    frames: Vec<Vec<u8>>,
    _echoes: Vec<Echo>,
}

/// All of them sending.
pub(crate) struct Round {
    flood: Flood,
    least: u64,
    honest: Vec<Honest>,
}

/// Addresses of the client and of the server, by family.
fn ways(host: &Host) -> [(IpAddr, IpAddr); 2] {
    let link = &host.lab.link;
    [(link.client.ipv4.into(), link.server.ipv4.into()), (link.client.ipv6.into(), link.server.ipv6.into())]
}

// === impl Traffic ===

impl Traffic {
    /// Before the first start, so that whatever is counted begins with the first round.
    pub(crate) fn prepare(host: &Host) -> Self {
        let parties = party::all(host);
        let server = &host.lab.link.server;
        let echoes = [server.ipv4.into(), server.ipv6.into()].map(|address| Echo::start(host, address));
        for (from, to) in ways(host) {
            honest::reach(host, from, to);
        }
        arrivals::count(host, &parties);
        let (v4, v6) = (host.lab.route_v4(), host.lab.route_v6());
        let flood = parties.iter().filter(|party| party.role != Role::Honest);
        let frames = flood.map(|Party { role, address }| {
            let route = if address.is_ipv4() { v4 } else { v6 };
            route.udp(*address, 4000, role.port(), b"flood")
        });
        let frames = frames.collect();
        Self { parties, asked: Arc::default(), frames, _echoes: echoes.into() }
    }

    pub(crate) fn start(&self, host: &Host) -> Round {
        let frames = self.frames.clone();
        let plan = Plan { frames, duration: 10 * PATIENCE, packets: None, rate: Some(PACE), cpu: None };
        let flood = host.lab.flood(plan).expect("a flood");
        let honest = ways(host).map(|(from, to)| Honest::start(host, from, to, &self.asked));
        Round { flood, least: LEAST * self.frames.len() as u64, honest: honest.into() }
    }
}

// === impl Round ===

impl Round {
    /// Lets all of them send a while longer, and then rest.
    pub(crate) fn stop(self) {
        let Self { flood, least, honest } = self;
        let begun = flood.offered();
        eventually("the flood goes on", || (flood.offered() >= begun + least).then_some(()));
        flood.stop().expect("it leaves");
        drop(honest);
    }
}
