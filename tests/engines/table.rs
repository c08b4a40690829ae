//! What is known of each engine at the end, as a table.

use std::fmt::Write as _;
use std::time::Duration;

/// What an engine did in one column.
pub enum Cell {
    /// It was right: how long it took, and what there is to say.
    Right(Duration, String),
    /// The program said with a code that this engine cannot.
    Refused(String),
    /// It is not asked of this engine.
    NotAsked,
    /// It was wrong: what was seen.
    Wrong(String),
}

/// One engine.
pub struct Row {
    pub engine: String,
    pub state: State,
}

pub enum State {
    /// It ran: a cell for each column.
    Ran(Vec<Cell>),
    /// It has its turn on another day, or was not asked for.
    LeftOut(&'static str),
    /// This machine lacks what it takes.
    Absent(String),
    /// All that it takes is here, and it does not start.
    Broken(String),
}

impl Row {
    /// Its line of the table.
    pub fn text(&self) -> String {
        let cells = match &self.state {
            State::Ran(cells) => cells.iter().map(Cell::text).collect(),
            State::LeftOut(why) => vec![(*why).to_owned()],
            State::Absent(why) => vec![format!("cannot start here: {why}")],
            State::Broken(_) => vec!["**does not start**".to_owned()],
        };
        format!("| {} | {} |", self.engine, cells.join(" | "))
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Cell::Right(took, note) if note.is_empty() => format!("ok, {}", seconds(*took)),
            Cell::Right(took, note) => format!("ok, {}, {note}", seconds(*took)),
            Cell::Refused(code) => format!("refused {code}"),
            Cell::NotAsked => "-".to_owned(),
            Cell::Wrong(_) => "**wrong**".to_owned(),
        }
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// A table in Markdown, and below it every cell that is wrong.
pub fn table(columns: &[&str], rows: &[Row]) -> String {
    let mut text = format!("| engine | {} |\n", columns.join(" | "));
    text += &format!("|{}\n", "---|".repeat(columns.len() + 1));
    for row in rows {
        let _ = writeln!(text, "{}", row.text());
    }
    for wrong in wrong(columns, rows) {
        let _ = write!(text, "\n{wrong}\n");
    }
    text
}

/// What is not as it has to be, in words.
pub fn wrong(columns: &[&str], rows: &[Row]) -> Vec<String> {
    let mut all = Vec::new();
    for Row { engine, state } in rows {
        match state {
            State::Ran(cells) => {
                for (column, cell) in columns.iter().zip(cells) {
                    if let Cell::Wrong(why) = cell {
                        all.push(format!("{engine}, {column}: {why}"));
                    }
                }
            }
            State::LeftOut(_) | State::Absent(_) => {}
            State::Broken(why) => all.push(format!("{engine} does not start: {why}")),
        }
    }
    all
}
