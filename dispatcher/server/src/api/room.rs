//! How many connections may be open, over all threads, and which of them makes room for another.
//!
//! Every thread has a listener of its own, and to which one a connection comes is the system's choice, which is far from even:
//! so the threads have one bound together and no shares of it. A thread takes a place for who has come, and keeps none for
//! who may; one that finds no place is told of the next that becomes free, whoever had it.
//!
//! A connection on which nothing is asked keeps its place until somebody has come who finds none: then it is closed, as a server may
//! close any that is idle, and the newcomer has its place. Otherwise whoever opens connections and says nothing would keep all others
//! out. Those on which nothing was ever asked go first, and others where there are none of these; of each kind the one that was silent
//! for longest, none before it was silent for a second, and none that has a request. Who is silent is marked without a lock, and
//! looked for only where somebody waits. Whether it is silent and whether it is to leave is one word, so that of a connection that
//! asks just when it is sent away either the one is true or the other.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ops::Bound::{Excluded, Unbounded},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Context,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::accept::API;

/// A connection that was silent for less may be just about to say something.
const STAYS: Duration = Duration::from_secs(1);
/// One that is to go has so long for that until another is.
const LEAVES: Duration = Duration::from_millis(100);
/// Connections that are counted at a time: nobody comes or goes meanwhile.
const COUNTED: usize = 1024;

/// The places that are left, and who has the others.
#[derive(Debug)]
pub struct Room {
    /// How many there are.
    most: usize,
    free: AtomicUsize,
    /// Told of every place that becomes free, also where nobody waits yet.
    freed: Notify,
    taken: Mutex<Taken>,
}

/// Who has a place.
#[derive(Debug, Default)]
struct Taken {
    guests: BTreeMap<u64, Arc<Guest>>,
    number: u64,
    /// Those that were silent when they were looked for last, in the order in which they are to go.
    silent: VecDeque<(Silence, Arc<Guest>)>,
}

/// A connection's place, free again when dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    guest: Arc<Guest>,
    number: u64,
}

/// What the room and a connection know of each other.
#[derive(Debug)]
pub struct Guest {
    came: Instant,
    /// Milliseconds since it came after which it fell silent, and one; [`ASKS`] while it is not, and [`LEAVING`] once somebody else
    /// is to have its place.
    silent: AtomicU64,
    has_asked: AtomicBool,
    /// Whoever polls the connection.
    waker: AtomicWaker,
}

const ASKS: u64 = 0;
/// Above all times, so that who falls silent once more leaves all the same.
const LEAVING: u64 = u64::MAX;

/// How many connections have a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Those with a request.
    pub asking: usize,
    /// Those that have asked something, and ask nothing now.
    pub idle: usize,
    /// Those on which nothing was ever asked.
    pub silent: usize,
}

/// Since when a connection is silent, after whether it has ever asked anything: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Silence {
    has_asked: bool,
    since: Instant,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            came: Instant::now(),
            silent: AtomicU64::new(1),
            has_asked: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }
}

impl Guest {
    /// Nothing is asked from now on.
    pub fn falls_silent(&self) {
        let after = u64::try_from(self.came.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.silent.fetch_max(after.saturating_add(1).min(LEAVING - 1), SeqCst);
    }

    /// Something was asked, and is being answered: nobody else gets the place.
    pub fn has_asked(&self) {
        if self.silent.load(SeqCst) != ASKS {
            self.silent.store(ASKS, SeqCst);
            self.has_asked.store(true, SeqCst);
        }
    }

    /// Whether it is to leave, of which whoever polls is told when that changes.
    pub fn must_leave(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.is_leaving()
    }

    fn is_leaving(&self) -> bool {
        self.silent.load(SeqCst) == LEAVING
    }

    /// `None` also of one that is leaving.
    fn silence(&self) -> Option<Silence> {
        self.silence_after(self.silent.load(SeqCst))
    }

    fn silence_after(&self, after: u64) -> Option<Silence> {
        if after == ASKS || after == LEAVING {
            return None;
        }
        let since = self.came + Duration::from_millis(after - 1);
        Some(Silence { has_asked: self.has_asked.load(SeqCst), since })
    }

    /// Tells it to leave, unless it is not silent any more, or not since then.
    fn send_away(&self, silence: Silence) -> bool {
        let after = self.silent.load(SeqCst);
        let sent = self.silence_after(after) == Some(silence)
            && self.silent.compare_exchange(after, LEAVING, SeqCst, SeqCst).is_ok();
        if sent {
            self.waker.wake();
        }
        sent
    }
}

impl Room {
    /// Room for so many connections.
    pub fn of(connections: usize) -> Arc<Self> {
        let free = AtomicUsize::new(connections);
        let (most, freed) = (connections, Notify::new());
        Arc::new(Self { most, free, freed, taken: Mutex::default() })
    }

    /// A place, if one is free.
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).ok()?;
        let guest = Arc::new(Guest::default());
        let mut taken = self.taken.lock();
        taken.number += 1;
        let number = taken.number;
        taken.guests.insert(number, guest.clone());
        Some(Place { room: self.clone(), guest, number })
    }

    /// How many places there are.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Who has a place.
    pub fn census(&self) -> Census {
        let (mut census, mut last) = (Census::default(), 0);
        loop {
            let taken = self.taken.lock();
            let before = last;
            for (number, guest) in taken.guests.range((Excluded(before), Unbounded)).take(COUNTED) {
                last = *number;
                census.count(guest);
            }
            if last == before {
                return census;
            }
        }
    }

    /// Has one leave that is silent. Otherwise says when one may have been so for long enough.
    fn send_away(&self) -> Result<(), Instant> {
        let mut taken = self.taken.lock();
        taken.send_away(Instant::now())?;
        API.displaced(taken.guests.len());
        Ok(())
    }
}

impl Census {
    fn count(&mut self, guest: &Guest) {
        let kind = match (guest.silent.load(SeqCst), guest.has_asked.load(SeqCst)) {
            (ASKS, _) => &mut self.asking,
            (_, true) => &mut self.idle,
            (_, false) => &mut self.silent,
        };
        *kind += 1;
    }
}

impl Taken {
    /// Has the next one leave; the look for those that are silent serves until none of them is any more.
    fn send_away(&mut self, now: Instant) -> Result<(), Instant> {
        loop {
            while let Some((silence, guest)) = self.silent.pop_front() {
                if guest.send_away(silence) {
                    return Ok(());
                }
            }
            self.look(now)?;
        }
    }

    /// Those on which nothing was ever asked, once they were silent for long enough; where there are none, the one of the others that
    /// was silent for longest.
    fn look(&mut self, now: Instant) -> Result<(), Instant> {
        let silent = self.guests.values().filter_map(|guest| Some((guest.silence()?, guest)));
        let (mut silent, strangers): (Vec<_>, Vec<_>) =
            silent.partition(|(silence, _)| silence.has_asked);
        let most = if strangers.is_empty() { 1 } else { strangers.len() };
        if !strangers.is_empty() {
            silent = strangers;
        }
        silent.sort_unstable_by_key(|(silence, _)| *silence);
        let since = silent.first().map_or(now, |(silence, _)| silence.since);
        if since + STAYS > now {
            return Err(since + STAYS);
        }
        let long = silent.iter().take_while(|(silence, _)| silence.since + STAYS <= now);
        self.silent =
            long.take(most).map(|(silence, guest)| (*silence, Arc::clone(guest))).collect();
        Ok(())
    }
}

impl Place {
    /// What the connection tells and is told.
    pub const fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Of what was found silent it is no more.
        self.guest.silent.store(ASKS, SeqCst);
        self.room.taken.lock().guests.remove(&self.number);
        self.room.free.fetch_add(1, SeqCst);
        self.room.freed.notify_one();
    }
}

/// A thread's listener, which accepts those for whom there is a place.
#[derive(Debug)]
pub struct Entrance {
    /// Where they come.
    pub listener: TcpListener,
    /// The places, of all threads.
    pub room: Arc<Room>,
    /// Who has come and has no place yet.
    pub come: Option<TcpStream>,
    /// When it is looked again who may leave, unless who was told to has.
    look_at: Option<Instant>,
    /// Somebody was told to leave.
    told: bool,
}

impl Entrance {
    /// An entrance to this room.
    pub const fn new(listener: TcpListener, room: Arc<Room>) -> Self {
        Self { listener, room, come: None, look_at: None, told: false }
    }

    /// Accepts the next connection for which there is a place. May be dropped at any time, and loses nobody.
    ///
    /// # Errors
    /// Those of accepting.
    pub async fn accept(&mut self) -> io::Result<(TcpStream, Place)> {
        loop {
            let stream = match self.come.take() {
                Some(stream) => stream,
                None => self.listener.accept().await?.0,
            };
            if let Some(place) = self.room.take() {
                if std::mem::take(&mut self.told) {
                    self.look_at = None;
                }
                return Ok((stream, place));
            }
            self.come = Some(stream);
            self.place_is_free().await;
        }
    }

    /// Ends when a place may be free.
    async fn place_is_free(&mut self) {
        let now = Instant::now();
        let at = match self.look_at {
            Some(at) if now < at => at,
            _ => {
                let told = self.room.send_away();
                self.told = told.is_ok();
                told.map_or_else(|at| at, |()| now + LEAVES)
            }
        };
        self.look_at = Some(at);
        let _ = timeout_at(at, self.room.freed.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guests that have come a second after each other, and whether each is told to leave.
    async fn guests<const N: usize>(room: &Arc<Room>) -> [Place; N] {
        let mut places = Vec::new();
        for _ in 0..N {
            places.push(room.take().unwrap());
            tokio::time::sleep(STAYS).await;
        }
        places.try_into().unwrap()
    }

    fn leaving(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|place| place.guest.is_leaving()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_go_first_and_of_each_kind_who_was_silent_for_longest() {
        let room = Room::of(4);
        let [asked, other, busy, stranger] = guests(&room).await;
        for place in [&asked, &other, &busy] {
            place.guest.has_asked();
        }
        other.guest.falls_silent();
        tokio::time::sleep(STAYS).await;
        asked.guest.falls_silent();
        tokio::time::sleep(STAYS).await;
        assert!(room.take().is_none());
        let all = [&asked, &other, &busy, &stranger];
        room.send_away().unwrap();
        assert_eq!(leaving(&all), [false, false, false, true]);
        room.send_away().unwrap();
        assert_eq!(leaving(&all), [false, true, false, true]);
        room.send_away().unwrap();
        assert_eq!(leaving(&all), [true, true, false, true]);
        assert_eq!(room.send_away(), Err(Instant::now() + STAYS), "no one else is silent");
        asked.guest.has_asked();
        assert_eq!(leaving(&all), [false, true, false, true], "it stays, for it has asked");
        drop(stranger);
        assert!(room.take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_silent_for_a_moment_stays() {
        let room = Room::of(1);
        let place = room.take().unwrap();
        let came = Instant::now();
        assert_eq!(room.send_away(), Err(came + STAYS));
        tokio::time::sleep(STAYS / 2).await;
        place.guest.falls_silent();
        assert_eq!(room.send_away(), Err(came + STAYS * 3 / 2));
        tokio::time::sleep(STAYS).await;
        assert_eq!(room.send_away(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_since_it_was_looked_for_is_passed_over() {
        let room = Room::of(3);
        let [first, second, third] = guests(&room).await;
        room.send_away().unwrap();
        second.guest.has_asked();
        room.send_away().unwrap();
        assert_eq!(leaving(&[&first, &second, &third]), [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_leaves_also_if_it_falls_silent_once_more_and_stays_if_it_asks() {
        let room = Room::of(1);
        let [place] = guests(&room).await;
        room.send_away().unwrap();
        place.guest.falls_silent();
        assert!(place.guest.is_leaving());
        let silence = Silence { has_asked: false, since: place.guest.came };
        place.guest.has_asked();
        assert!(!place.guest.is_leaving());
        assert!(!place.guest.send_away(silence), "it was seen silent, and has asked since");
        place.guest.falls_silent();
        assert!(!place.guest.is_leaving(), "its next silence is another one");
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_who_has_a_place_is_counted_once_by_what_is_asked() {
        let many = COUNTED + 7;
        let room = Room::of(many + 2);
        let mut places: Vec<_> = (0..many).map(|_| room.take().unwrap()).collect();
        for place in &places[..COUNTED] {
            place.guest.has_asked();
        }
        places[0].guest.falls_silent();
        assert_eq!(room.census(), Census { asking: COUNTED - 1, idle: 1, silent: 7 });
        places.truncate(2);
        assert_eq!(room.census(), Census { asking: 1, idle: 1, silent: 0 });
        drop(places);
        assert_eq!((room.census(), room.most()), (Census::default(), many + 2));
    }
}
