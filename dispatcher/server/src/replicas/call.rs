//! Calls another dispatcher, asks it while it decides, and says how it goes.

use std::{io, net::SocketAddr, sync::Arc, sync::atomic::Ordering::Relaxed};

use async_channel::Receiver;
use smallvec::IntoIter;
use subtle::ConstantTimeEq as _;
use tokio::{
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    BEAT, LATE, SILENT,
    circle::Circle,
    rank::Rank,
    seal::{Seals, Side, nonce, proof},
    wire::{Asks, Hello, Out, PROTOCOL, Says, Values, Welcome, Why},
};
use crate::hub::{
    errand::Errand,
    led::{Errands, Lead},
};

/// Errands that wait to be written, beside what the system has room for. One that takes none for so long is given up: nothing may be
/// left out. Tests go beyond it, and are built without optimization.
pub(super) const QUEUED: usize = if cfg!(test) { 1 << 10 } else { 1 << 14 };
/// Errands written at a time.
const AT_ONCE: usize = 256;

/// How a call ended that was answered.
#[derive(Debug)]
pub(super) enum Over {
    /// It was to this dispatcher itself, or to one that is called already.
    Needless,
    /// It may not ask.
    Refused(Why),
    /// It decides no longer, or was given up.
    Farewell,
    /// It gives signs of life, and answers too late.
    Late,
    /// It broke, or what was said in it cannot be understood.
    Lost(io::Error),
}

/// Calls an address and stays for as long as both are there.
///
/// # Errors
/// When nobody answers as another dispatcher would.
pub(super) async fn call(
    circle: &Arc<Circle>,
    address: SocketAddr,
    secret: [u8; 32],
) -> io::Result<Over> {
    let (mut line, rank) = match timeout(SILENT, greet(circle, address, secret)).await?? {
        Ok(greeted) => greeted,
        Err(why) => return Ok(Over::Refused(why)),
    };
    if rank == circle.own {
        return Ok(Over::Needless);
    }
    let (errands, due) = async_channel::bounded(QUEUED);
    let lead = Lead::new(address.to_string(), errands);
    // Its end, whichever way this ends, has everything decided elsewhere.
    let Some(_seat) = circle.join(rank, lead.clone()) else { return Ok(Over::Needless) };
    let over = converse(circle, &lead, &due, &mut line).await;
    if matches!(over, Ok(Over::Late) | Err(_))
        && circle.hub.lead().is_some_and(|decides| Arc::ptr_eq(&decides, &lead))
    {
        // It may live on, with streams of its own.
        circle.hub.lost_sight();
    }
    Ok(over.unwrap_or_else(Over::Lost))
}

/// A call that was taken.
struct Line {
    says: Values<OwnedReadHalf>,
    asks: OwnedWriteHalf,
    out: Out,
}

async fn greet(
    circle: &Circle,
    address: SocketAddr,
    secret: [u8; 32],
) -> io::Result<Result<(Line, Rank), Why>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (from, mut asks) = stream.into_split();
    let (mut says, mut out) = (Values::new(from), Out::default());
    let model = circle.hub.model().to_string();
    let own = nonce()?;
    out.put(&Hello { protocol: PROTOCOL, nonce: own, model })?;
    out.send(&mut asks).await?;
    let (its, proven) = match says.next().await? {
        Welcome::Prove { nonce, proof } => (nonce, proof),
        Welcome::Stay(why) => return Ok(Err(why)),
        Welcome::Come(_) => return Ok(Err(Why::Secret)),
    };
    let nonces = [&own, &its];
    if !bool::from(proof(&secret, Side::Called, nonces).ct_eq(&proven)) {
        return Ok(Err(Why::Secret));
    }
    out.put(&proof(&secret, Side::Caller, nonces))?;
    out.send(&mut asks).await?;
    // Whoever only passed the proofs on, from another or from this one itself, has no say in what comes now.
    says.seal(Seals::new(&secret, Side::Called, nonces));
    out.seal(Seals::new(&secret, Side::Caller, nonces));
    Ok(match says.next().await? {
        Welcome::Come(rank) => Ok((Line { says, asks, out }, rank)),
        Welcome::Stay(why) => Err(why),
        Welcome::Prove { .. } => Err(Why::Secret),
    })
}

async fn converse(
    circle: &Circle,
    lead: &Arc<Lead>,
    due: &Receiver<Errands>,
    line: &mut Line,
) -> io::Result<Over> {
    let Line { says, asks, out } = line;
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut held = None;
    // Beats that are not answered: what is asked for takes as long to be heard of. Its verdict may take longer, for want of a pod.
    let mut open = 0;
    let mut due = Agenda { due, left: Errands::new().into_iter() };
    loop {
        tokio::select! {
            said = says.next() => {
                match said? {
                    Says::Beat => {}
                    Says::Done => open -= open.min(1),
                    Says::Lore(lore) => circle.hub.note_lore(lead, lore),
                    Says::Held(now) => held = Some(now),
                    Says::Farewell => {
                        held.take_if(|held| circle.hub.hold(lead, held));
                        return Ok(Over::Farewell);
                    }
                    Says::Word(word) => {
                        circle.heard.fetch_add(1, Relaxed);
                        if let Some(errand) = circle.hub.hear(lead, word) {
                            out.put(&Asks::Errand(errand))?;
                        }
                    }
                }
            }
            errand = due.next(), if out.has_room() => {
                let Some(errand) = errand else { return Ok(Over::Farewell) };
                out.put(&Asks::Errand(errand))?;
                for _ in 1..AT_ONCE {
                    let Some(errand) = out.has_room().then(|| due.at_hand()).flatten() else { break };
                    out.put(&Asks::Errand(errand))?;
                }
            }
            written = out.write(asks), if out.is_due() => written?,
            _ = beat.tick() => {
                says.beat()?;
                out.beat()?;
                if open > LATE {
                    return Ok(Over::Late);
                }
                out.put(&Asks::Beat)?;
                open += 1;
                // Once it decides; until then it is kept.
                held.take_if(|held| circle.hub.hold(lead, held));
            }
        }
        out.offer(asks)?;
    }
}

/// Errands one by one, however many are told at once.
struct Agenda<'a> {
    due: &'a Receiver<Errands>,
    left: IntoIter<[Errand; 1]>,
}

impl Agenda<'_> {
    /// The next one; `None` when the lead was given up.
    async fn next(&mut self) -> Option<Errand> {
        loop {
            if let Some(errand) = self.left.next() {
                return Some(errand);
            }
            self.left = self.due.recv().await.ok()?.into_iter();
        }
    }

    /// The same without waiting for one.
    fn at_hand(&mut self) -> Option<Errand> {
        loop {
            if let Some(errand) = self.left.next() {
                return Some(errand);
            }
            self.left = self.due.try_recv().ok()?.into_iter();
        }
    }
}
