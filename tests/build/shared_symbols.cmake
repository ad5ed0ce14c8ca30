# SPDX-License-Identifier: Apache-2.0
#
# cmake -DNM=nm -DOBJECTS=<a.o;b.o;...> -P shared_symbols.cmake: these objects, compiled with
# different -m flags, may have no function of lathe or Highway in common: the linker would take one
# for all. The default Executor::run is let pass: a scalar loop around an indirect call.
cmake_minimum_required(VERSION 3.22)

foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --defined-only --demangle ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WT] [^\n]*(lathe|hwy)::[^\n]*" functions "${symbols}")
  if(NOT functions)
    message(FATAL_ERROR "nothing of lathe in ${object}")
  endif()
  list(TRANSFORM functions REPLACE "^[0-9a-f]+ [WT] " "")
  list(FILTER functions EXCLUDE REGEX "^lathe::Executor::run::.*lambda")
  list(REMOVE_DUPLICATES functions)
  foreach(function IN LISTS functions)
    if(function IN_LIST seen)
      list(APPEND shared "${function}")
    endif()
  endforeach()
  list(APPEND seen ${functions})
endforeach()
if(shared)
  list(REMOVE_DUPLICATES shared)
  list(JOIN shared "\n  " shared)
  message(FATAL_ERROR "in more than one object:\n  ${shared}")
endif()
