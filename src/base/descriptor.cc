// Closes what descriptor.hpp owns.
#include "base/descriptor.hpp"

#include <unistd.h>

namespace tutti::base {

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

}  // namespace tutti::base
