// ten_lines CAPTURE ROWS WIDTH ID...: the rows of the embedding, captured.
#include <assay.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv)
{
    std::vector<int32_t> ids;
    for (int i = 4; i < argc; i++)
        ids.push_back(std::atoi(argv[i]));
    const int64_t dims[] = {int64_t(ids.size()), argc > 3 ? std::atoll(argv[3]) : 0};
    std::vector<float> rows(size_t(dims[0] * dims[1]));
    FILE *f = argc > 4 ? std::fopen(argv[2], "rb") : nullptr;
    if (!f || std::fread(rows.data(), sizeof(float), rows.size(), f) != rows.size())
        return 129;
    std::fclose(f);

    assay_session *session;
    assay_session_options options = assay_session_options_default();
    options.producer = "ten_lines";
    int status = assay_session_open(&session, argv[1], &options);
    if (!status)
        status = assay_session_step(session, ASSAY_PREFILL, 0, ids.data(), dims[0]);
    if (!status)
        status = assay_session_show_dense(session, "embed", rows.data(), ASSAY_TYPE_F32, 2, dims);
    if (!status)
        status = assay_session_close(session);
    if (status)
        std::fprintf(stderr, "ten_lines: %s\n", assay_last_error());
    return status;
}
