// What Python sees of a source: functions with C names, bound in library.py. Everything else stays inside the library.
#pragma once

#define EXPORT extern "C" __attribute__((visibility("default")))
