//! One page of HTML with everything inside: style, text, pictures. Nothing is loaded from anywhere, nothing runs.

use std::fmt::Write as _;

use super::{
    html::{escape, prose},
    palette,
    section::{Part, Section},
};

/// The page's style. Sizes follow the reader's; on a narrow screen everything is in one column and only tables scroll sideways.
const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(title: &str, lead: &str, sections: &[Section]) -> String {
    let mut html = String::new();
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n\
         <style>\n{STYLE}{}\n</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
        escape(title),
        palette::dark_rules(),
        escape(title),
        prose(lead),
    );
    html.push_str(&contents(sections));
    for section in sections {
        write_section(&mut html, section);
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn contents(sections: &[Section]) -> String {
    let link = |section: &Section| {
        format!("<li><a href=\"#{}\">{}</a></li>\n", section.id, escape(section.title))
    };
    format!("<nav><ul>\n{}</ul></nav>\n", sections.iter().map(link).collect::<String>())
}

fn write_section(html: &mut String, section: &Section) {
    let _ = write!(
        html,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<p class=\"how\">{}</p>\n",
        section.id,
        escape(section.title),
        prose(&section.lead),
        prose(section.how),
    );
    for part in &section.parts {
        write_part(html, part);
    }
    html.push_str("</section>\n");
}

fn write_part(html: &mut String, part: &Part) {
    if !part.heading.is_empty() {
        let _ = writeln!(html, "<h3>{}</h3>", escape(&part.heading));
    }
    for (class, text) in [("run", &part.run), ("shows", &part.lead)] {
        if !text.is_empty() {
            let _ = writeln!(html, "<p class=\"{class}\">{}</p>", prose(text.trim()));
        }
    }
    if !part.pictures.is_empty() {
        html.push_str("<div class=\"pictures\">\n");
        for picture in &part.pictures {
            let _ = writeln!(html, "<figure>{}</figure>", picture.inline());
        }
        html.push_str("</div>\n");
    }
    if part.table.rows.is_empty() {
        return;
    }
    let table = part.table.markup();
    if part.open {
        html.push_str(&table);
    } else {
        let _ = writeln!(html, "<details><summary>The numbers</summary>\n{table}</details>");
    }
}
