// errors.hpp: part of the stand-in for CUDA, which is a test kit and NOT CUDA: the errors that it
// can give, as the driver and the runtime call them.
#pragma once

namespace stand_in {

struct Error {
  int code;
  const char* driver_name;
  const char* runtime_name;
  const char* text;
};

// Null: not an error that the stand-in gives.
const Error* find_error(int code);

}  // namespace stand_in
