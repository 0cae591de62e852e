"""Tools that train the same model from the same weights, to be measured.

`training_tool` says what a tool is, `registry` lists them, `matgrad_tool` is matgrad on each backend,
`standalone` its C++ program, and `baselines` are what they are compared with.
"""
