/* ---- The module ---- */

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "passnet_launch", .m_size = -1};

PyMODINIT_FUNC PyInit_passnet_launch(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    data_ptr = PyUnicode_InternFromString("data_ptr");
    dtype = PyUnicode_InternFromString("dtype");
    get_device = PyUnicode_InternFromString("get_device");
    PyTypeObject *types[] = {
        driver_type = (PyTypeObject *)PyType_FromSpec(&driver_spec),
        kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec),
        launches_type = (PyTypeObject *)PyType_FromSpec(&launches_spec),
        (PyTypeObject *)PyType_FromSpec(&guarded_spec),
        (PyTypeObject *)PyType_FromSpec(&replayed_spec),
    };
    int good = data_ptr && dtype && get_device;
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        good = good && types[n] && PyModule_AddType(module, types[n]) == 0;
    if (good) return module;
    Py_DECREF(module);
    return NULL;
}
