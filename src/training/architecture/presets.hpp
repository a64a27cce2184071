// presets.hpp: the models that have a name of their own; config.hpp's model_preset() makes them.
#pragma once

#include <string>
#include <vector>

namespace tutti::training {

// In the order of documentation: small ones first.
std::vector<std::string> model_preset_names();

}  // namespace tutti::training
