use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier, Style},
};
use serde::de::DeserializeOwned;

use super::{
    change::{Change, Deed},
    feed::{Ask, Board, Detail, Focus, News},
    keys::Order,
    seat::{Pane, Seat},
    *,
};
use crate::cli::answers::{Called, Decisions, Lane, Pod, Pods, Queues, Requests};

const POOL: &str = "qwen3-32b";

fn recorded<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn board() -> Board {
    let mut board = Board {
        overview: recorded(include_str!("recorded/overview.json")),
        queues: recorded::<Queues>(include_str!("recorded/queues.json")).queues,
        pods: recorded::<Pods>(include_str!("recorded/pods.json")).pods,
        decisions: recorded::<Decisions>(include_str!("recorded/decisions.json")).decisions,
    };
    board.sort();
    board
}

fn seat() -> Seat {
    let mut seat = Seat::new("http://127.0.0.1:8081".to_owned());
    seat.hear(News::Board(Box::new(board())));
    seat
}

fn drawn(seat: &Seat, width: u16, height: u16) -> (String, Buffer) {
    painted(seat, width, height, Paint::of_environment())
}

fn painted(seat: &Seat, width: u16, height: u16, paint: Paint) -> (String, Buffer) {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    terminal.draw(|frame| draw::frame(frame, seat, paint)).unwrap();
    (text_of(terminal.backend()), terminal.backend().buffer().clone())
}

fn text(seat: &Seat) -> String {
    drawn(seat, 120, 40).0
}

fn line<'a>(text: &'a str, with: &str) -> &'a str {
    text.lines()
        .find(|line| line.contains(with))
        .unwrap_or_else(|| panic!("{with} is not in\n{text}"))
}

/// The colour of the first cell of a word.
fn colour(seat: &Seat, word: &str) -> Color {
    style(&drawn(seat, 120, 40), word).fg.unwrap()
}

/// The style of the first cell of a word.
fn style((text, buffer): &(String, Buffer), word: &str) -> Style {
    let (y, line) = text.lines().enumerate().find(|(_, line)| line.contains(word)).unwrap();
    let x = line.split_once(word).unwrap().0.chars().count();
    buffer[(u16::try_from(x).unwrap(), u16::try_from(y).unwrap())].style()
}

fn press(seat: &mut Seat, code: KeyCode) -> Order {
    seat.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn lane(name: &str) -> Focus {
    Focus::Lane { pool: POOL.to_owned(), lane: name.to_owned() }
}

fn request(number: u64) -> Focus {
    let called = Called { number, name: format!("weir-d7c01562-{number}") };
    Focus::Request { pool: POOL.to_owned(), request: called }
}

/// A board with so many lanes and pods.
fn large(lanes: usize, pods: usize) -> Board {
    let mut large = board();
    let lane = Lane { depth: 100, ..large.queues[0].clone() };
    large.queues =
        (0..lanes).map(|at| Lane { lane: format!("b0/i{at}"), ..lane.clone() }).collect();
    let pod = large.pods[0].clone();
    large.pods = (0..pods).map(|at| Pod { pod: format!("pod-{at}"), ..pod.clone() }).collect();
    large
}

#[test]
fn pods_that_are_needed_are_told_where_they_are_known() {
    let head = |need: &str| {
        let mut board = board();
        board.overview.pools[0].need = recorded(need);
        let mut seat = Seat::new(String::new());
        seat.hear(News::Board(Box::new(board)));
        line(&text(&seat), "waiting 213").to_owned()
    };
    assert!(head(r#"{"pods": 4}"#).contains("pods 2/3 ready (4 needed)"));
    assert!(!head("null").contains("needed"));
}

#[test]
fn the_board_shows_pools_lanes_pods_and_decisions_with_their_reasons() {
    let text = text(&seat());
    let head = line(&text, "waiting 213");
    for part in ["(8 late)", "in flight 96", "pods 2/3 ready", "model v7", "drain 12s"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let outcomes = line(&text, "attained");
    for part in
        ["interactive 99.2%", "standard 91.0%", "band -10 34%", "refused predicted_wait 617"]
    {
        assert!(outcomes.contains(part), "{part}: {outcomes}");
    }
    assert!(!outcomes.contains("queue_full"), "nothing was refused for it: {outcomes}");
    let late = line(&text, "b0/i2048/o256");
    for part in
        ["142", "8/38/96", "3.9s", "9.4s", "ttft_over_slo (slo 2.0s, ttft 2.4s)", "█", "▓", "░"]
    {
        assert!(late.contains(part), "{part}: {late}");
    }
    assert!(line(&text, "b-10/i8192").contains("paused"));
    assert!(line(&text, "pod-0").contains("47ms/50ms"));
    assert!(line(&text, "draining").contains("7 left, about 12s more"));
    assert!(line(&text, "broken").contains("breaker open, 4 failures"));
    assert!(line(&text, "dispatch").contains("pulled"));
    assert!(line(&text, "refuse").contains("predicted_wait"));
}

#[test]
fn a_pool_that_another_dispatcher_decides_for_says_where() {
    let mut seat = seat();
    assert!(!text(&seat).contains("DECIDED"));
    seat.board.overview.pools[0].decided_by = Some("10.0.0.7:8082".to_owned());
    assert!(line(&text(&seat), "waiting 213").contains("DECIDED BY 10.0.0.7:8082"));
}

#[test]
fn an_id_that_is_cut_does_not_look_whole() {
    let mut seat = seat();
    seat.board.decisions[0].request_id = "x".repeat(60);
    let text = text(&seat);
    assert!(text.contains(&format!("{}…", "x".repeat(35))), "{text}");
}

#[test]
fn no_figure_of_a_pool_is_cut_at_the_edge_of_the_terminal() {
    let seat = seat();
    for width in 60..130 {
        let text = drawn(&seat, width, 40).0;
        let head = line(&text, "waiting 213");
        for (word, whole) in
            [("drain", "drain 12s"), ("flight", "in flight 96"), ("model", "model v7")]
        {
            assert!(!head.contains(word) || head.contains(whole), "{width}: {head}");
        }
    }
    assert!(line(&drawn(&seat, 80, 40).0, "waiting 213").contains("drain 12s"));
}

#[test]
fn the_lane_that_is_latest_comes_first_and_colours_say_the_risk() {
    let seat = seat();
    let text = text(&seat);
    let at = |word: &str| text.find(word).unwrap();
    assert!(at("b0/i2048/o256") < at("b1/i512/o256"), "{text}");
    assert!(at("b1/i512/o256") < at("b0/i512/o64"), "{text}");
    assert_eq!(colour(&seat, "b0/i2048/o256"), Color::Red);
    assert_eq!(colour(&seat, "b1/i512/o256"), Color::Yellow);
    assert_eq!(colour(&seat, "b0/i512/o64"), Color::Green);
    assert_eq!(colour(&seat, "broken"), Color::Red);
}

#[test]
fn enter_goes_to_a_lane_then_to_a_request_and_escape_back() {
    let mut seat = seat();
    let look = |focus: Focus| Order::Ask(Ask::Look(focus));
    let in_lane = lane("b0/i2048/o256");
    assert_eq!(press(&mut seat, KeyCode::Enter), look(in_lane.clone()));
    let page = Detail::Lane(recorded(include_str!("recorded/requests.json")));
    seat.hear(News::Detail(in_lane.clone(), page.clone()));
    let shown = text(&seat);
    assert!(line(&shown, "weir-d7c01562-90000").contains("-1.9s"), "{shown}");
    assert!(line(&shown, "weir-d7c01562-90007").contains("behind_its_lane"), "{shown}");

    press(&mut seat, KeyCode::Down);
    let focus = request(90007);
    assert_eq!(press(&mut seat, KeyCode::Enter), look(focus));
    press(&mut seat, KeyCode::Esc);
    seat.hear(News::Detail(in_lane.clone(), page));
    press(&mut seat, KeyCode::Up);
    let focus = request(90000);
    assert_eq!(press(&mut seat, KeyCode::Enter), look(focus.clone()));
    let request = Detail::Request(Box::new(recorded(include_str!("recorded/request.json"))));
    seat.hear(News::Detail(focus, request));
    let shown = text(&seat);
    assert!(shown.contains(" request weir-d7c01562-90000 (number 90000) "), "{shown}");
    assert!(shown.contains("its first token would come 440 ms too late"), "{shown}");
    assert!(line(&shown, "pod-0").contains("pod-0"), "{shown}");
    assert!(shown.contains("-440ms") && shown.contains("demoted: late"), "{shown}");

    assert_eq!(press(&mut seat, KeyCode::Esc), look(in_lane));
    assert_eq!(press(&mut seat, KeyCode::Esc), look(Focus::Board));
    assert_eq!(press(&mut seat, KeyCode::Esc), Order::Nothing);
}

#[test]
fn a_change_is_asked_for_first_and_any_key_but_yes_leaves_it() {
    let mut seat = seat();
    assert_eq!(press(&mut seat, KeyCode::Char('c')), Order::Nothing);
    assert!(text(&seat).contains("cancel all 142 requests of lane b0/i2048/o256?"));
    assert_eq!(press(&mut seat, KeyCode::Char('n')), Order::Nothing);
    assert!(seat.asking.is_none());

    press(&mut seat, KeyCode::Char('p'));
    let pause = Change { pool: POOL.to_owned(), deed: Deed::Pause("b0/i2048/o256".to_owned()) };
    assert_eq!(press(&mut seat, KeyCode::Char('y')), Order::Ask(Ask::Do(pause)));
    seat.hear(News::Done("b0/i2048/o256 is paused".to_owned()));
    assert!(text(&seat).contains("b0/i2048/o256 is paused"));
    // A lane that is paused goes on.
    let lanes = &seat.board.queues;
    for _ in 0..lanes.iter().position(|lane| lane.paused).unwrap() {
        press(&mut seat, KeyCode::Down);
    }
    press(&mut seat, KeyCode::Char('p'));
    assert!(text(&seat).contains("resume lane b-10/i8192/o1024?"));
}

#[test]
fn a_request_that_is_called_by_anothers_number_is_cancelled_and_the_other_is_not() {
    let mut seat = seat();
    let in_lane = lane("b0/i2048/o256");
    press(&mut seat, KeyCode::Enter);
    let mut page: Requests = recorded(include_str!("recorded/requests.json"));
    page.requests[0].request_id = "90007".to_owned();
    assert_eq!(page.requests[1].id, 90007);
    seat.hear(News::Detail(in_lane, Detail::Lane(page)));
    press(&mut seat, KeyCode::Char('c'));
    assert!(text(&seat).contains("cancel 90007 (number 90000)?"), "{}", text(&seat));
    let meant = Called { number: 90000, name: "90007".to_owned() };
    assert_eq!(meant.path().as_str(), "/requests/%2390000");
    let deed = Deed::Cancel(meant.clone());
    let change = Order::Ask(Ask::Do(Change { pool: POOL.to_owned(), deed }));
    assert_eq!(press(&mut seat, KeyCode::Char('y')), change);
    let focus = Focus::Request { pool: POOL.to_owned(), request: meant };
    assert_eq!(press(&mut seat, KeyCode::Enter), Order::Ask(Ask::Look(focus)));
}

#[test]
fn without_colours_what_is_picked_and_what_has_the_keys_is_seen() {
    let mut seat = seat();
    let reversed = |seat: &Seat, word: &str| {
        style(&painted(seat, 120, 40, Paint::plain()), word)
            .add_modifier
            .contains(Modifier::REVERSED)
    };
    let seen = |seat: &Seat| {
        ["4 lanes", "b0/i2048/o256", "b1/i512/o256", "3 pods", "pod-0"]
            .map(|word| reversed(seat, word))
    };
    assert_eq!(seen(&seat), [true, true, false, false, false]);
    press(&mut seat, KeyCode::Down);
    assert_eq!(seen(&seat), [true, false, true, false, false]);
    press(&mut seat, KeyCode::Tab);
    assert_eq!(seen(&seat), [false, false, false, true, true]);
    let (_, buffer) = painted(&seat, 120, 40, Paint::plain());
    assert!(buffer.content().iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
}

#[test]
fn d_drains_a_pod_and_lets_a_draining_one_go_on() {
    let mut seat = seat();
    press(&mut seat, KeyCode::Char('d'));
    assert!(seat.asking.is_none(), "the lanes have the keys");
    press(&mut seat, KeyCode::Tab);
    assert_eq!(seat.pane, Pane::Pods);
    let change = |deed| Order::Ask(Ask::Do(Change { pool: POOL.to_owned(), deed }));
    press(&mut seat, KeyCode::Char('d'));
    assert_eq!(press(&mut seat, KeyCode::Char('y')), change(Deed::Drain("pod-0".to_owned())));
    press(&mut seat, KeyCode::Down);
    press(&mut seat, KeyCode::Char('d'));
    assert_eq!(press(&mut seat, KeyCode::Char('y')), change(Deed::Uncordon("pod-1".to_owned())));
}

#[test]
fn what_is_picked_stays_picked_when_rows_move() {
    let mut seat = seat();
    press(&mut seat, KeyCode::Down);
    let picked = seat.lane().unwrap().lane.clone();
    let mut moved = board();
    let worst = moved.queues.iter_mut().find(|lane| lane.lane == picked).unwrap();
    worst.risk.late = 1000;
    moved.sort();
    seat.hear(News::Board(Box::new(moved)));
    assert_eq!(seat.places()[0], 0);
    assert_eq!(seat.lane().unwrap().lane, picked);
    // One that is gone gives its place to the next.
    let mut gone = board();
    gone.queues.retain(|lane| lane.lane != picked);
    seat.hear(News::Board(Box::new(gone)));
    assert!(seat.lane().is_some());
}

#[test]
fn a_lost_connection_keeps_the_last_picture_and_says_that_it_is_old() {
    let mut seat = seat();
    seat.hear(News::Lost("the admin side does not answer".to_owned()));
    let shown = text(&seat);
    assert!(shown.contains("LOST, this is old: the admin side does not answer"), "{shown}");
    assert!(shown.contains("b0/i2048/o256"), "{shown}");
    seat.hear(News::Board(Box::new(board())));
    assert!(!text(&seat).contains("LOST"));
}

#[test]
fn what_is_gone_and_news_of_a_view_that_was_left_do_no_harm() {
    let mut seat = seat();
    press(&mut seat, KeyCode::Enter);
    seat.hear(News::Detail(lane("another"), Detail::Gone("of before".to_owned())));
    assert!(seat.detail.is_none());
    seat.hear(News::Detail(
        lane("b0/i2048/o256"),
        Detail::Gone("it has left the queue".to_owned()),
    ));
    assert!(text(&seat).contains("it has left the queue"));
    press(&mut seat, KeyCode::Esc);
    seat.hear(News::Board(Box::default()));
    assert!(text(&seat).contains("nothing waits"));
    for key in [KeyCode::Enter, KeyCode::Char('c'), KeyCode::Char('p'), KeyCode::Down, KeyCode::End]
    {
        assert_eq!(press(&mut seat, key), Order::Nothing);
    }
    assert!(seat.asking.is_none());
}

#[test]
fn on_eighty_columns_reasons_and_notes_are_read_and_the_keys_fit() {
    let mut seat = seat();
    let text = drawn(&seat, 80, 40).0;
    for part in ["(8 late)", "pods 2/3 ready", "ttft_over_slo", "7 left, about 12s more", "q quit"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(line(&text, "broken").contains("breaker open, 4 failures"), "{text}");
    press(&mut seat, KeyCode::Tab);
    assert!(drawn(&seat, 80, 40).0.contains("d drain or let go on"));
}

#[test]
fn every_size_of_a_terminal_can_be_drawn() {
    let mut seat = seat();
    for (width, height) in [(1, 1), (20, 5), (80, 24), (132, 60), (400, 200)] {
        drawn(&seat, width, height);
    }
    seat.enter(lane("b0/i2048/o256"));
    drawn(&seat, 10, 3);
}

#[test]
fn q_and_control_c_leave_also_while_a_question_waits() {
    let mut seat = seat();
    assert_eq!(press(&mut seat, KeyCode::Char('q')), Order::Quit);
    press(&mut seat, KeyCode::Char('c'));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(seat.press(control_c), Order::Quit);
}

#[test]
fn a_plain_frame_has_every_row_and_no_line_ends_in_spaces() {
    let text = plain_frame(&mut seat(), 132);
    for part in
        ["b0/i2048/o256", "b0/i512/o64", "b1/i512/o256", "b-10/i8192/o1024", "pod-2", "refuse"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
}

#[test]
fn a_plain_frame_has_every_row_of_a_large_pool() {
    for (lanes, pods) in [(60, 120), (3, 120), (60, 2), (0, 0), (700, 900)] {
        let mut board = large(lanes, pods);
        let decision = board.decisions[0].clone();
        board.decisions = vec![decision; 30];
        let mut seat = seat();
        seat.hear(News::Board(Box::new(board)));
        let text = plain_frame(&mut seat, 132);
        let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        let want = (lanes, pods, PLAIN_DECISIONS);
        let decisions = text.lines().filter(|line| line.contains("dispatch ")).count();
        assert_eq!((rows("│b0/i"), rows("│pod-"), decisions), want, "{text}");
        assert!(!text.contains(" more "), "{text}");
    }
}

#[test]
fn a_table_says_how_many_rows_it_does_not_show() {
    let mut seat = seat();
    seat.hear(News::Board(Box::new(large(2500, 40))));
    let text = plain_frame(&mut seat, 132);
    assert!(line(&text, " more ").contains(" … 500 more "), "{text}");
    // On the board rows are scrolled to.
    let text = drawn(&seat, 120, 40).0;
    assert_eq!(text.matches(" more ").count(), 2, "{text}");
}

#[test]
fn a_hundred_thousand_requests_in_a_thousand_lanes_and_five_hundred_pods_are_drawn() {
    let mut seat = seat();
    seat.hear(News::Board(Box::new(large(1000, 500))));
    press(&mut seat, KeyCode::End);
    let shown = text(&seat);
    assert!(shown.contains("1000 lanes") && shown.contains("500 pods"), "{shown}");
    assert!(shown.contains("b0/i999"), "the picked row is in sight:\n{shown}");
}

/// Answers every call of one connection after the other with a board; the stream ends after one event.
fn serve_boards(listener: &std::net::TcpListener, connections: usize) {
    use std::io::{Read as _, Write as _};
    for _ in 0..connections {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).unwrap();
        assert!(
            head[..read].starts_with(b"GET /api/v1/events "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        let queues =
            serde_json::to_string(&serde_json::json!({"overview": {"version": "9"}})).unwrap();
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        write!(stream, "{head}event: board\ndata: {queues}\n\n").unwrap();
    }
}

#[test]
fn the_feed_says_that_the_stream_broke_and_opens_it_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || serve_boards(&listener, 2));
    let line = ["weir", "--admin", &address];
    let args = <Alone as clap::Parser>::try_parse_from(line).unwrap();
    let feed = Feed::start(Admin::new(&args.remote).unwrap(), None).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let mut heard = Vec::new();
    while heard.len() < 4 {
        assert!(std::time::Instant::now() < deadline, "{heard:?}");
        match feed.news() {
            Some(News::Board(board)) => heard.push(board.overview.version),
            Some(News::Lost(_)) => heard.push("lost".to_owned()),
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(heard, ["9", "lost", "9", "lost"]);
    server.join().unwrap();
    feed.end();
}

#[derive(clap::Parser)]
struct Alone {
    #[command(flatten)]
    remote: RemoteArgs,
}
