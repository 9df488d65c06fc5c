//! The operator's page: its files, held in the binary and served as they are.
//!
//! The page is plain HTML, CSS and JavaScript modules. It holds no data of its own and asks `/api/v1`
//! for everything, so its files need no token. Nothing is built: what is edited is what is served.
//! Browsers ask each time whether a file has changed, so that a new binary is never half seen; what is
//! sent is compressed once, when the listener starts, for the browsers that say that they take gzip.
//!
//! The charts are drawn by the page from `/history`. A chart rendered here is an image: it cannot be
//! asked for with a token, does not follow the browser's colours, and has no figure under the pointer.

use std::{io::Write as _, sync::Arc};

use axum::{
    Router,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};

/// Nothing from elsewhere, nothing inline, and in no other page's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal, $kind:literal, $name:literal;)*) => {
        &[$(File { path: $path, kind: $kind, text: include_str!($name) }),*]
    };
}

const FILES: &[File] = files![
    "/", "text/html; charset=utf-8", "index.html";
    "/assets/style.css", "text/css; charset=utf-8", "style.css";
    "/assets/icon.svg", "image/svg+xml", "icon.svg";
    "/assets/app.js", "text/javascript; charset=utf-8", "app.js";
    "/assets/acts.js", "text/javascript; charset=utf-8", "acts.js";
    "/assets/api.js", "text/javascript; charset=utf-8", "api.js";
    "/assets/board.js", "text/javascript; charset=utf-8", "board.js";
    "/assets/charts.js", "text/javascript; charset=utf-8", "charts.js";
    "/assets/dom.js", "text/javascript; charset=utf-8", "dom.js";
    "/assets/list.js", "text/javascript; charset=utf-8", "list.js";
    "/assets/models.js", "text/javascript; charset=utf-8", "models.js";
    "/assets/panel.js", "text/javascript; charset=utf-8", "panel.js";
    "/assets/pod.js", "text/javascript; charset=utf-8", "pod.js";
    "/assets/pods.js", "text/javascript; charset=utf-8", "pods.js";
    "/assets/request.js", "text/javascript; charset=utf-8", "request.js";
    "/assets/words.js", "text/javascript; charset=utf-8", "words.js";
];

/// A file as it is sent: its bytes and what a browser knows them by.
#[derive(Clone, Debug)]
struct Form {
    bytes: Bytes,
    tag: String,
}

/// Both forms of a file.
#[derive(Clone, Debug)]
struct Served {
    kind: &'static str,
    plain: Form,
    packed: Form,
}

impl Served {
    fn new(file: File) -> Self {
        let (plain, tag) = (Bytes::from_static(file.text.as_bytes()), tag(file.text));
        let packed = Form { bytes: pack(&plain), tag: format!("\"{tag}-gzip\"") };
        Self { kind: file.kind, plain: Form { bytes: plain, tag: format!("\"{tag}\"") }, packed }
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let packed = takes_gzip(asked);
        let form = if packed { &self.packed } else { &self.plain };
        let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known == &form.tag);
        let headers = [
            (header::CONTENT_TYPE, self.kind),
            (header::ETAG, form.tag.as_str()),
            (header::CACHE_CONTROL, "no-cache"),
            (header::VARY, "accept-encoding"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        if known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let encoding = packed.then_some([(header::CONTENT_ENCODING, "gzip")]);
        (headers, encoding, form.bytes.clone()).into_response()
    }
}

/// `GET /` and `GET /assets/*`.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let served = Arc::new(Served::new(*file));
        let answer = move |asked: HeaderMap| std::future::ready(served.answer(&asked));
        router.route(file.path, get(answer))
    })
}

/// Whether gzip is among what is taken, and not with a weight of nothing.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let codings =
        asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

fn pack(plain: &[u8]) -> Bytes {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = packer.write_all(plain);
    packer.finish().unwrap_or_default().into()
}

fn tag(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn html() -> &'static str {
        FILES[0].text
    }

    #[test]
    fn every_file_that_the_page_names_is_served() {
        let mut named = 0;
        for text in FILES.iter().map(|file| file.text) {
            for rest in text.split("\"/assets/").skip(1).chain(text.split("from \"./").skip(1)) {
                let name = rest.split('"').next().unwrap();
                let path = format!("/assets/{name}");
                assert!(FILES.iter().any(|file| file.path == path), "{path} is not served");
                named += 1;
            }
        }
        assert!(named > FILES.len(), "the page names its files");
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        assert!(!html().contains("<style") && !html().contains(" style="));
        assert!(!html().contains("<script>") && !html().contains(" onclick="));
        for file in FILES {
            let elsewhere = file.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("://"), "{} names another place", file.path);
            assert!(!file.text.contains("innerHTML"), "{} could show markup of others", file.path);
        }
    }

    #[test]
    fn what_a_browser_has_already_is_not_sent_again() {
        let served = Served::new(FILES[0]);
        let asks = |known: &str| {
            let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, known.parse().unwrap())]);
            served.answer(&asked)
        };
        assert_eq!(asks(&served.plain.tag).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asks(&served.packed.tag).status(), StatusCode::OK, "it is another form");
        let anew = asks("\"another\"");
        assert_eq!(anew.status(), StatusCode::OK);
        assert_eq!(anew.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
    }

    #[test]
    fn a_browser_that_takes_gzip_gets_less_and_the_same() {
        let served = Served::new(FILES[0]);
        let asks = |coding: &'static str| {
            let asked = HeaderMap::from_iter([(header::ACCEPT_ENCODING, coding.parse().unwrap())]);
            served.answer(&asked)
        };
        for coding in ["gzip", "deflate, GZIP;q=1.0, br", "gzip;q=0.5"] {
            assert_eq!(asks(coding).headers()[header::CONTENT_ENCODING], "gzip", "{coding}");
        }
        for coding in ["", "br", "gzip;q=0"] {
            assert!(!asks(coding).headers().contains_key(header::CONTENT_ENCODING), "{coding}");
        }
        let mut text = String::new();
        GzDecoder::new(&*served.packed.bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, html());
    }

    /// The aim for all scripts of the page together.
    #[test]
    fn the_script_stays_small() {
        let scripts = FILES.iter().filter(|file| file.path.ends_with(".js"));
        let sizes = scripts.map(|file| (file.text.len(), pack(file.text.as_bytes()).len()));
        let (plain, packed) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        println!("the page's script: {plain} bytes, {packed} as it is sent");
        assert!(packed < 30_000, "{packed}");
    }
}
