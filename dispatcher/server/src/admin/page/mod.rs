//! The operator's page: its files, held in the binary and served as they are.
//!
//! The page is plain HTML, CSS and JavaScript modules. It holds no data of its own and asks `/api/v1`
//! for everything, so its files need no token. Nothing is built: what is edited is what is served.
//! Browsers ask each time whether a file has changed, so that a new binary is never half seen.
//!
//! The charts are drawn by the page from `/history`. A chart rendered here is an image: it cannot be
//! asked for with a token, does not follow the browser's colours, and has no figure under the pointer.

use axum::{
    Router,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
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

/// `GET /` and `GET /assets/*`.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let tag = format!("\"{}\"", tag(file.text));
        let answer = move |asked: HeaderMap| std::future::ready(answer(*file, &tag, &asked));
        router.route(file.path, get(answer))
    })
}

fn answer(file: File, tag: &str, asked: &HeaderMap) -> Response {
    let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag);
    let headers = [
        (header::CONTENT_TYPE, file.kind),
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let text = if known { "" } else { file.text };
    let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    (status, headers, text).into_response()
}

fn tag(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
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
        let tag = format!("\"{}\"", tag(html()));
        let asks = |known: &str| {
            let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, known.parse().unwrap())]);
            answer(FILES[0], &tag, &asked)
        };
        assert_eq!(asks(&tag).status(), StatusCode::NOT_MODIFIED);
        let anew = asks("\"another\"");
        assert_eq!(anew.status(), StatusCode::OK);
        assert_eq!(anew.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
    }
}
