/// Boost.JSON is used header-only; this is the one file that holds its definitions.
#include <boost/json/src.hpp>
