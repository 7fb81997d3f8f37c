/* ---- The module ---- */

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "passnet_launch", .m_size = -1};

PyMODINIT_FUNC PyInit_passnet_launch(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    data_ptr = PyUnicode_InternFromString("data_ptr");
    dtype = PyUnicode_InternFromString("dtype");
    get_device = PyUnicode_InternFromString("get_device");
    acquire = PyUnicode_InternFromString("acquire");
    release = PyUnicode_InternFromString("release");
    kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    PyTypeObject *call_type = (PyTypeObject *)PyType_FromSpec(&call_spec);
    PyTypeObject *replayed_type = (PyTypeObject *)PyType_FromSpec(&replayed_spec);
    int good = data_ptr && dtype && get_device && acquire && release && kernel_type && call_type && replayed_type &&
               PyModule_AddType(module, kernel_type) == 0 && PyModule_AddType(module, call_type) == 0 &&
               PyModule_AddType(module, replayed_type) == 0;
    Py_XDECREF(call_type);
    Py_XDECREF(replayed_type);
    if (good) return module;
    Py_DECREF(module);
    return NULL;
}
