//! The table that is printed at the end.

/// One figure.
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The median, with its unit.
    pub measured: String,
    /// The floor's median, with its unit; empty without one.
    pub floor: String,
    /// What the target is about, and the target.
    pub reached: f64,
    /// At most this.
    pub target: f64,
    /// The unit of the two.
    pub unit: &'static str,
}

/// Prints the rows as a table of Markdown.
pub fn print(rows: &[Row]) {
    println!("| what | measured | floor | reached | target | |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let verdict = if row.reached <= row.target { "yes" } else { "**no**" };
        let Row { what, measured, floor, reached, target, unit } = row;
        println!("| {what} | {measured} | {floor} | {reached:.2} {unit} | {target} {unit} | {verdict} |");
    }
}
