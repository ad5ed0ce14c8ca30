# SPDX-License-Identifier: Apache-2.0
#
# cmake -DDOXYGEN= -DTREE= -DOUTPUT= -DVERSION= [-DMISTAKE=comment] -P doxygen.cmake: docs/Doxyfile, without a
# warning. With MISTAKE one function more is documented by that comment.
cmake_minimum_required(VERSION 3.22)

if(NOT DOXYGEN)
  message(STATUS "there is no doxygen")
  return()
endif()
file(REMOVE_RECURSE "${OUTPUT}")
file(MAKE_DIRECTORY "${OUTPUT}")
file(READ "${TREE}/docs/Doxyfile" config)
string(APPEND config "
PROJECT_NUMBER = ${VERSION}
OUTPUT_DIRECTORY = ${OUTPUT}
")
if(MISTAKE)
  file(WRITE "${OUTPUT}/mistake.h" "// SPDX\n// A header.\n\n${MISTAKE}\nint Mistake(int count);\n")
  string(APPEND config "INPUT += ${OUTPUT}/mistake.h\n")
endif()
file(WRITE "${OUTPUT}/Doxyfile" "${config}")
execute_process(COMMAND "${DOXYGEN}" "${OUTPUT}/Doxyfile" WORKING_DIRECTORY "${TREE}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE warnings)
if(result OR NOT warnings STREQUAL "")
  message(FATAL_ERROR "doxygen warns:\n${warnings}")
endif()
file(GLOB pages "${OUTPUT}/html/mla__decode_8h.html")
if(NOT pages)
  message(FATAL_ERROR "doxygen made no page of mla_decode.h")
endif()
