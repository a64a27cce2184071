// pipeline_drawing.hpp: pictures of a timed schedule: an SVG for documents, and characters for
// terminals. Ranks are lanes, time goes to the right.
//
// Draws what the chart claims; whether that is possible is pipeline_validator.hpp.
#pragma once

#include <cstddef>
#include <string>

#include "training/plan/pipeline_schedule.hpp"

namespace tutti::training {

// A complete SVG document, dark on light: boxes with micro-batch numbers, coloured by what is done
// and paler for later chunks, a title with the bubble's share, a legend, a time axis.
std::string draw_svg(const PipelineChart& chart);

// Lines of at most `columns` characters (0: as long as it takes); what is longer goes on below.
// A cell is one unit of time: the largest that all times are multiples of.
//
//     rank 0 |F0 F1 B0 == ...
std::string draw_text(const PipelineChart& chart, std::size_t columns = 100);

}  // namespace tutti::training
