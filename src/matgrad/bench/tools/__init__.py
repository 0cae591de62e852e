"""What is measured: tools that train the same model from the same weights.

`training_tool` says what a tool is, `registry` lists them, `matgrad_tool` is matgrad on each backend and
`standalone` its C++ program, and `baselines` is what they are compared with.
"""
