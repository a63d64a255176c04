//! The pins of a host, and the daemon that works with them.

use anyhow::{Context as _, bail};
use ratelimit::{
    admin::client::{Client, ClientError},
    network::state::StateDir,
};

use super::{AdminSocket, PinDir, lacks};

/// Where to look, and whom to ask.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    #[command(flatten)]
    pin_dir: PinDir,
    #[command(flatten)]
    admin_socket: AdminSocket,
}

impl Target {
    /// What is pinned.
    pub(super) fn state(&self) -> StateDir {
        StateDir::new(&self.pin_dir.path)
    }

    /// Asks on the admin socket, whoever listens there.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        Client::new(&self.admin_socket.path)
    }

    /// The daemon that works with these pins. `None`: nobody does, and what is pinned may be changed.
    pub(super) fn daemon(&self) -> anyhow::Result<Option<Client>> {
        let (state, client) = (self.state(), self.client()?);
        match client.status() {
            Ok(status) if status.pin_dir == state.root().display().to_string() => Ok(Some(client)),
            // It works with other pins; is there one for these?
            Ok(_) => self.unheard().map(|()| None),
            Err(error) if error.is_no_daemon() => self.unheard().map(|()| None),
            Err(error) => Err(error.into()),
        }
    }

    /// The daemon, for what nobody else can do.
    pub(super) fn required(&self) -> anyhow::Result<Client> {
        match self.daemon()? {
            Some(client) => Ok(client),
            None => bail!(
                "no daemon works with {}, and only one can do this; start it (systemctl start ratelimit, or ratelimit \
                 daemon --config FILE), or give its socket and pins: --admin-socket PATH --pin-dir DIR",
                self.pin_dir.path.display()
            ),
        }
    }

    /// Reads the pins; where this user may not, asks the daemon that may.
    pub(super) fn read<T, E: Into<anyhow::Error>>(
        &self,
        pins: impl FnOnce(&StateDir) -> Result<T, E>,
        daemon: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> anyhow::Result<T> {
        let denied = match pins(&self.state()) {
            Ok(read) => return Ok(read),
            Err(error) => error.into(),
        };
        if !denied.chain().any(lacks) {
            return Err(denied);
        }
        let Ok(Some(client)) = self.daemon() else {
            return Err(denied.context("reading the pins takes root"));
        };
        Ok(daemon(&client)?)
    }

    /// Makes sure that no daemon works with the pins, of which the socket knows nothing.
    fn unheard(&self) -> anyhow::Result<()> {
        match self.state().holder() {
            None => Ok(()),
            Some(holder) => Err(anyhow::anyhow!("it is {holder}")).with_context(|| {
                format!(
                    "a daemon works with {}, but not the one that listens on {}; give its socket: \
                         --admin-socket PATH",
                    self.pin_dir.path.display(),
                    self.admin_socket.path.display()
                )
            }),
        }
    }
}
