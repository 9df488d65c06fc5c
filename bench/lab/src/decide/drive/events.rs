//! What each kind of event is.

use weir_core::{End, EndKind, Event, Progress, RequestId, TICK};

use super::{Due, Run, SCRAPE_EVERY, Stream};

impl Run<'_> {
    pub(super) fn arrival(&mut self) {
        let gap_us = (1e6 / self.course.qps).max(1.0);
        // Fractions of a microsecond are kept: at rates beyond a million nothing would be.
        self.arrivals += 1.0;
        let next = weir_core::Time::from_micros((self.arrivals * gap_us) as u64);
        self.plan(next.max(self.now), Due::Arrival);
        let Some((request, sizes)) = self.load.next(self.now) else { return };
        self.asked.insert(request.id, sizes);
        self.handle("arrive", Event::Arrive(request));
    }

    pub(super) fn first_token(&mut self, id: RequestId) {
        let Some(stream) = self.stream(id) else { return };
        let (pod, streamed) = (stream.pod, stream.streamed);
        stream.told = u32::from(streamed);
        self.pool.begin(pod);
        if streamed {
            self.handle("first token", Event::FirstToken(id));
        }
    }

    pub(super) fn end(&mut self, id: RequestId) {
        let Some(place) = self.streams.remove(&id) else { return };
        let Stream { pod, input_tokens, output_tokens, .. } = self.running.swap_remove(place);
        if let Some(moved) = self.running.get(place) {
            self.streams.insert(moved.id, place);
        }
        self.pool.end(pod, input_tokens + output_tokens);
        let end = End {
            id,
            kind: EndKind::Complete,
            output_tokens: Some(output_tokens),
            events: output_tokens,
            prompt_tokens: Some(input_tokens),
            last_token_at: Some(self.now),
        };
        self.handle("end", Event::End(end));
    }

    /// A pod that had nothing else took one of the backlog: its client leaves soon and another waits in its place, or it would keep
    /// the pod to the end.
    pub(super) fn unstuck(&mut self, id: RequestId) {
        let end = End {
            id,
            kind: EndKind::ClientGone,
            output_tokens: None,
            events: 0,
            prompt_tokens: None,
            last_token_at: None,
        };
        self.handle("end", Event::End(end));
        self.stuck();
    }

    /// Tells how far streams and pods have come.
    pub(super) fn sweep(&mut self) {
        self.plan(self.now.plus(TICK), Due::Sweep);
        let (now, passed_ms) = (self.now, TICK.as_secs_f64() * 1e3);
        let moved = self.running.iter_mut().filter_map(|stream| {
            let tokens = stream.tokens_at(now);
            let fresh = stream.told > 0 && tokens > stream.told;
            stream.told = if fresh { tokens } else { stream.told };
            fresh.then_some((stream.id, tokens))
        });
        let events = moved.collect();
        let pulses = self.pool.pulses(now, passed_ms);
        self.handle("progress", Event::Progress(Progress { events, pulses }));
    }

    pub(super) fn scrape(&mut self) {
        self.plan(self.now.plus(SCRAPE_EVERY), Due::Scrape);
        let scrapes: Vec<_> = self.pool.scrapes().collect();
        for (pod, scrape) in scrapes {
            self.handle("scrape", Event::Scraped(pod, scrape));
        }
    }

    pub(super) fn tick(&mut self) {
        self.ticking = false;
        self.handle("tick", Event::Tick);
    }

    fn stream(&mut self, id: RequestId) -> Option<&mut Stream> {
        let place = *self.streams.get(&id)?;
        self.running.get_mut(place)
    }
}

impl Stream {
    /// Tokens streamed by now, if they come evenly.
    fn tokens_at(&self, now: weir_core::Time) -> u32 {
        let whole_ms = self.times.end.ms_since(self.times.first_token).max(1e-3);
        let share = (now.ms_since(self.times.first_token) / whole_ms).clamp(0.0, 1.0);
        1 + (share * f64::from(self.output_tokens.saturating_sub(1))) as u32
    }
}
