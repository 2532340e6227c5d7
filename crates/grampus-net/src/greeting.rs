//! Runs the handshake of [`crate::handshake`] over a connection.

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::handshake::{self, HELLO, Hello, Identity, MAGIC, PROOF, Proof, Role, Verdict};
use crate::stream::closed;
use crate::{NetError, Security, proof, tls};

/// A fresh connection.
pub(crate) trait Fresh: Send {
    /// Whether descriptors can travel over it.
    const LOCAL: bool;

    /// Reads what is there; 0 at the end.
    fn read(&mut self, space: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Writes everything.
    fn write(
        &mut self,
        bytes: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// The oldest descriptor that came.
    fn descriptor(&mut self) -> Option<OwnedFd>;
}

/// The dialer's side. Gives the listener's name.
pub(crate) async fn dial<W: Fresh>(
    wire: &mut W,
    identity: &Identity,
    name: &str,
    label: &Arc<str>,
) -> Result<String, NetError> {
    let hello = Hello::new(identity.job, Verdict::Accepted)?;
    write(wire, &hello.encode(), None, label).await?;
    let answer = read_hello(wire, label).await?;
    compare(&hello, &answer)?;
    refused(answer.verdict, name, label)?;

    let hellos = [&hello, &answer];
    let mine = Proof::new(identity, Role::Dialer, hellos, name)?;
    let witness = if W::LOCAL {
        Some(proof::witness(&answer.nonce)?)
    } else {
        None
    };
    write(
        wire,
        &mine.encode(),
        witness.as_ref().map(|memory| memory.fd()),
        label,
    )
    .await?;
    let theirs = handshake::parse_proof(&read::<PROOF, W>(wire, label).await?)?;
    refused(theirs.verdict, name, label)?;
    let listener = theirs.verify(identity, Role::Listener, hellos)?.to_owned();
    if W::LOCAL && !proof::holds(wire.descriptor(), &hello.nonce) {
        return Err(NetError::OtherHost);
    }
    Ok(listener)
}

/// The listener's side. Gives the dialer's name.
pub(crate) async fn answer<W: Fresh>(
    wire: &mut W,
    identity: &Identity,
    name: &str,
    label: &Arc<str>,
) -> Result<String, NetError> {
    let hello = read_hello(wire, label).await?;
    let mut answer = Hello::new(identity.job, Verdict::Accepted)?;
    let compared = compare(&answer, &hello);
    answer.verdict = match &compared {
        Ok(()) => Verdict::Accepted,
        Err(NetError::Version { .. }) => Verdict::Version,
        Err(_) => Verdict::Job,
    };
    write(wire, &answer.encode(), None, label).await?;
    compared?;

    let hellos = [&hello, &answer];
    let theirs = handshake::parse_proof(&read::<PROOF, W>(wire, label).await?)?;
    let dialer = match theirs.verify(identity, Role::Dialer, hellos) {
        Ok(_) if W::LOCAL && !proof::holds(wire.descriptor(), &answer.nonce) => {
            Err((Verdict::Host, NetError::OtherHost))
        }
        Ok(dialer) => Ok(dialer.to_owned()),
        Err(NetError::WrongKey) => Err((Verdict::Key, NetError::WrongKey)),
        Err(error) => Err((Verdict::Name, error)),
    };
    let dialer = match dialer {
        Ok(dialer) => dialer,
        Err((verdict, error)) => {
            // The reason matters more than whether the peer still hears it.
            let _ = write(wire, &Proof::refusal(verdict).encode(), None, label).await;
            return Err(error);
        }
    };
    let mine = Proof::new(identity, Role::Listener, hellos, name)?;
    let witness = if W::LOCAL {
        Some(proof::witness(&hello.nonce)?)
    } else {
        None
    };
    write(
        wire,
        &mine.encode(),
        witness.as_ref().map(|memory| memory.fd()),
        label,
    )
    .await?;
    Ok(dialer)
}

fn compare(ours: &Hello, theirs: &Hello) -> Result<(), NetError> {
    if ours.version != theirs.version {
        return Err(NetError::Version {
            ours: ours.version,
            theirs: theirs.version,
        });
    }
    if ours.job != theirs.job {
        return Err(NetError::WrongJob {
            ours: ours.job,
            theirs: theirs.job,
        });
    }
    Ok(())
}

/// What a refusal means to the dialer. Versions and jobs were compared before.
fn refused(verdict: Verdict, name: &str, label: &Arc<str>) -> Result<(), NetError> {
    match verdict {
        Verdict::Accepted => Ok(()),
        Verdict::Key => Err(NetError::WrongKey),
        Verdict::Host => Err(NetError::OtherHost),
        Verdict::Name => Err(NetError::BadName(name.to_owned())),
        Verdict::Security => Err(NetError::WrongSecurity {
            ours: Security::Plain,
            theirs: Security::Tls,
        }),
        Verdict::Version | Verdict::Job => Err(closed(label, "during the handshake")),
    }
}

async fn read_hello<W: Fresh>(wire: &mut W, label: &Arc<str>) -> Result<Hello, NetError> {
    let mut bytes = [0; HELLO];
    let mut filled = 0;
    while filled < HELLO {
        let count = wire
            .read(&mut bytes[filled..])
            .await
            .map_err(|source| tls::explain(source, label))?;
        filled += count;
        // Judged as it comes: a stranger that sends a few bytes and waits gets its answer at once.
        let known = filled.min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(NetError::garbage(
                "what came is no greeting of grampus",
                &bytes[..filled],
            ));
        }
        if count == 0 {
            return Err(closed(label, "during the handshake"));
        }
    }
    handshake::parse_hello(&bytes)
}

async fn read<const N: usize, W: Fresh>(wire: &mut W, label: &Arc<str>) -> Result<[u8; N], NetError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Not a byte beyond: what follows may be a frame, and its descriptor with it.
        match wire
            .read(&mut bytes[filled..])
            .await
            .map_err(|source| tls::explain(source, label))?
        {
            0 => return Err(closed(label, "during the handshake")),
            count => filled += count,
        }
    }
    Ok(bytes)
}

async fn write<W: Fresh>(
    wire: &mut W,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
    label: &Arc<str>,
) -> Result<(), NetError> {
    wire.write(bytes, fd)
        .await
        .map_err(|source| tls::explain(source, label))
}
