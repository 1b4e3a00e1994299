# Pass only when the program ends with an error and the sanitizer's message.
#   cmake -DPROGRAM=... -DMESSAGE=... -P stopped_by.cmake
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(code STREQUAL "0")
  message(FATAL_ERROR "the planted fault went through with exit status 0:\n${output}")
endif()
string(FIND "${output}" "${MESSAGE}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "the program ended with ${code}, but not by \"${MESSAGE}\":\n${output}")
endif()
message(STATUS "stopped with ${code}: ${MESSAGE}")
