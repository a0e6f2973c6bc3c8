//! Plots of the comparison, drawn by plotters as SVG. Axes are logarithmic: brokers differ by
//! factors.

use crate::error::PerfError;
use plotters::prelude::*;

const WIDTH: u32 = 960;
/// Room for each bar and around them.
const BAR_HEIGHT: u32 = 14;
const AROUND: u32 = 110;
const COLORS: [RGBColor; 5] = [
    RGBColor(0x9a, 0xa0, 0xa6),
    RGBColor(0xd9, 0x5f, 0x0e),
    RGBColor(0xfe, 0xb2, 0x4c),
    RGBColor(0x5f, 0x66, 0x6d),
    RGBColor(0x8c, 0x2d, 0x04),
];

/// One broker's values: one for each label, where it has one.
pub struct Series {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

/// Groups of bars that lie beside each other, one group for each label.
pub fn bars(title: &str, labels: &[String], series: &[Series]) -> Result<String, PerfError> {
    let Some((low, high)) = range(series) else { return Ok(String::new()) };
    let bars = (labels.len() * (series.len() + 1)) as u32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, bars * BAR_HEIGHT + AROUND))
            .into_drawing_area();
        area.fill(&WHITE).map_err(PerfError::plot)?;
        let rows = labels.len() as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(28)
            .y_label_area_size(260)
            .build_cartesian_2d((low..high).log_scale(), rows..0.0)
            .map_err(PerfError::plot)?;
        // A label stands at the middle of its group.
        let label = |at: &f64| labels.get(at.floor() as usize).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(8)
            .x_label_formatter(&|value| number(*value))
            .label_style(("sans-serif", 13))
            .draw()
            .map_err(PerfError::plot)?;
        let each = 1.0 / (series.len() + 1) as f64;
        for (number, one) in series.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            let bar = |(row, value): (usize, &Option<f64>)| {
                let top = row as f64 + each * (number as f64 + 0.5);
                value.map(|value| Rectangle::new([(low, top), (value, top + each)], color.filled()))
            };
            chart
                .draw_series(one.values.iter().enumerate().filter_map(bar))
                .map_err(PerfError::plot)?
                .label(one.name.clone())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled())
                });
        }
        let middle = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Center,
        );
        let style = ("sans-serif", 13).into_text_style(&area).pos(middle);
        for row in 0..labels.len() {
            let at = row as f64 + 0.5;
            let (x, y) = chart.backend_coord(&(low, at));
            area.draw(&Text::new(label(&at), (x - 8, y), style.clone()))
                .map_err(PerfError::plot)?;
        }
        legend(&mut chart)?;
        area.present().map_err(PerfError::plot)?;
    }
    Ok(svg)
}

/// Lines over labels that follow each other.
pub fn lines(title: &str, labels: &[&str], series: &[Series]) -> Result<String, PerfError> {
    let Some((low, high)) = range(series) else { return Ok(String::new()) };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 360)).into_drawing_area();
        area.fill(&WHITE).map_err(PerfError::plot)?;
        let last = labels.len().saturating_sub(1).max(1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(28)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..last, (low..high).log_scale())
            .map_err(PerfError::plot)?;
        let label = |at: &f64| {
            let is_whole = (at - at.round()).abs() < 1e-6;
            let label = labels.get(at.round() as usize).filter(|_| is_whole);
            label.map_or(String::new(), |label| label.to_string())
        };
        chart
            .configure_mesh()
            .x_labels(labels.len())
            .x_label_formatter(&label)
            .y_label_formatter(&|value| number(*value))
            .label_style(("sans-serif", 13))
            .draw()
            .map_err(PerfError::plot)?;
        for (number, one) in series.iter().enumerate() {
            let style = COLORS[number % COLORS.len()].stroke_width(2);
            let points = one.values.iter().enumerate();
            let points = points.filter_map(|(at, value)| value.map(|value| (at as f64, value)));
            chart
                .draw_series(LineSeries::new(points, style))
                .map_err(PerfError::plot)?
                .label(one.name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], style));
        }
        legend(&mut chart)?;
        area.present().map_err(PerfError::plot)?;
    }
    Ok(svg)
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<(), PerfError>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(PerfError::plot)
}

/// From below the least to above the most; nothing where there is no value above zero.
fn range(series: &[Series]) -> Option<(f64, f64)> {
    let values = || {
        let all = series.iter().flat_map(|one| one.values.iter().flatten().copied());
        all.filter(|value| *value > 0.0 && value.is_finite())
    };
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    Some((low / 2.0, high * 1.5))
}

/// As few digits as tell it.
fn number(value: f64) -> String {
    match value {
        _ if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        _ if value >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_show_every_label_and_broker() {
        let series = |name: &str, values: [Option<f64>; 2]| Series {
            name: name.to_string(),
            values: values.to_vec(),
        };
        let both = [series("one", [Some(1.0), Some(400.0)]), series("two", [Some(3.0), None])];
        let labels = ["first".to_string(), "second".to_string()];
        let svg = bars("a title", &labels, &both).unwrap();
        for word in ["<svg", "</svg>", "a title", "first", "second", "one", "two"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        let svg = lines("a title", &["p50", "p99"], &both).unwrap();
        for word in ["<svg", "</svg>", "a title", "p50", "p99", "one", "two"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(bars("nothing", &labels, &[series("none", [None, Some(0.0)])]).unwrap(), "");
    }
}
