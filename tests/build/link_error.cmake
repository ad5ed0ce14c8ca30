# SPDX-License-Identifier: Apache-2.0
#
# cmake -DLINK=<command;...> -DEXPECT=<regex> -P link_error.cmake: LINK must fail and say EXPECT.
cmake_minimum_required(VERSION 3.22)

execute_process(COMMAND ${LINK} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "the program links")
elseif(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "no '${EXPECT}' in:\n${output}")
endif()
message(STATUS "fails as it should: ${CMAKE_MATCH_0}")
