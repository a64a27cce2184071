// tune_choose.hpp: from times to a table: which way is the best at each size, where one begins to
// be better than another, and which numbers of the model come closest to all times. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/tune_measure.hpp"
#include "collectives/tuning.hpp"

namespace tutti::cli {

// The best way at one size, and what the model would have taken.
struct TuneWinner {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
  collectives::TunedTime best;
  collectives::TunedTime model;
};

// The nearest number with so many decimal digits, which prints with no more.
double rounded(double value, int digits);

// For each collective and size that was measured. With two kinds of buffers the best is the one
// whose slowness, compared with the best on each kind, is the least on average (geometric), because
// the table cannot know which buffers a call will have. The model's choice stays unless another
// one is at least a few per cent quicker: noise must not choose.
std::vector<TuneWinner> tune_winners(const TuneFindings& findings);

// From which size on to use what: where winners differ between two sizes, the border lies where the
// lines through their times cross, or in the middle where one was not measured at both.
std::vector<collectives::TunedUse> tune_uses(const std::vector<TuneWinner>& winners,
                                             const collectives::TuningPlace& place);

// The numbers of the model for a transport, from what its worlds found.
struct TuneFit {
  collectives::TransportFigures figures;
  double error_before = 1;  // the median factor between predicted and measured, with defaults
  double error_after = 1;
};
TuneFit fit_figures(const std::string& transport, const std::vector<TuneFindings>& worlds);

// What a planner with these figures (null: the defaults) predicts where the place is. Units: us; 0
// where the way cannot serve.
class TunePredictor {
 public:
  TunePredictor(const collectives::TuningKey& key, const collectives::TransportFigures* figures);
  double us(Collective collective, std::size_t bytes, const collectives::TunedChoice& choice);
  // What it would choose.
  std::optional<collectives::TunedChoice> choice(Collective collective, std::size_t bytes);

 private:
  int ranks_;
  collectives::Planner planner_;
};

}  // namespace tutti::cli
